"""The probes: NVML on a stubbed vendor module, torch's allocator on a stubbed torch, the host for real."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from gpu_doctor import machine
from gpu_doctor.machine import cgroup, host, torch_memory
from gpu_doctor.machine import processes as children
from gpu_doctor.machine.checkup import gather
from gpu_doctor.machine.nvml import activity, gauges, neighbours, probe
from gpu_doctor.machine.nvml.visible import look
from gpu_doctor.machine.probe import Probe, ProbeScope, Reader
from gpu_doctor.machine.probes import PROBES
from gpu_doctor.recording import DeviceSetup
from tests.support.probing import MIB, values
from tests.support.probing import no_visible_devices as no_visible_devices
from tests.support.stub_nvml import GIB, LOST, NO_DRIVER, NO_LIBRARY, NOT_SUPPORTED, Card, NVMLError, StubNvml


class Desk:
    """Machine with stubbed cards on which a probe is opened: a clock to turn by hand, notes to read."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s, self.notes, self._patch = 50.0, list[str](), patch
        self.scope = ProbeScope(note=self.notes.append, clock=lambda: self.now_s)

    def cards(self, *cards: Card, **more: Any) -> StubNvml:
        """Puts cards into the machine; returns the vendor's module that tells of them."""
        vendor = StubNvml(*cards, **more)
        self._patch.setattr(probe, "VENDOR", vendor)
        return vendor

    def uses_cuda(self, in_use: bool, *uuids: str) -> None:
        """Lets torch have initialised CUDA, or not, and name these cards; none if it is too old to tell UUIDs."""
        self._patch.setattr(probe, "cuda_in_use", lambda: in_use)
        self._patch.setattr(probe, "device_uuids", lambda: uuids)

    def sees_every_process(self, whole: bool) -> None:
        """Lets the machine be one whose list of processes is whole, or a container."""
        self._patch.setattr(neighbours, "sees_every_process", lambda: whole)

    @contextmanager
    def reading(self, opened: Probe = probe.opened) -> Iterator[Reader]:
        """Opens a probe that has a source."""
        with opened(self.scope) as read:
            assert read is not None
            yield read

    def read_once(self) -> dict[str, float]:
        """Returns what the probe of NVML reads first."""
        with self.reading() as read:
            return values(read())


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(monkeypatch)


def test_every_module_of_a_probe_is_listed() -> None:
    names = [one.name for one in pkgutil.walk_packages(machine.__path__, f"{machine.__name__}.")]
    opened = {vars(importlib.import_module(name)).get("opened") for name in names}
    assert opened - {None} == {one for _, one in PROBES}


def test_a_gpu_that_shares_a_module_with_its_cpu(desk: Desk) -> None:
    desk.cards(Card(name="NVIDIA GH200 480GB", c2c=(10, 44_712)))
    assert desk.read_once()["c2c_bytes_per_s"] == pytest.approx(447.12e9)


def test_a_healthy_h200(desk: Desk) -> None:
    gpm = {1: float("nan"), 2: 64.0, 3: 31.0, 5: 12.5, 10: 40.0}
    card = Card(gpm=gpm, reasons=4, processes=[(1, 9 * GIB)])
    vendor = desk.cards(card)
    with desk.reading() as read:
        first = values(read())
        desk.now_s += 0.5
        again = values(read())
    assert first["gpu_util_pct"] == 71 and first["gpu_memory_used_bytes"] == GIB
    assert first["gpu_power_w"] == pytest.approx(402.5) and first["gpu_temperature_c"] == 54
    assert first["sm_clock_mhz"] == 1755 and first["sm_clock_max_mhz"] == 1980 and first["clock_limit_bits"] == 4
    assert (first["pcie_gen"], first["pcie_width"], first["pcie_width_max"]) == (5, 16, 16)
    assert (first["other_processes"], first["other_processes_bytes"]) == (1, 9 * GIB)
    assert first["gpu_energy_j"] == again["gpu_energy_j"] == 1000 and first["gpu_power_default_w"] == 700
    assert (first["pcie_gen_max"], first["driver_cuda"]) == (5, 13000)
    assert "c2c_bytes_per_s" not in first, "no link to a CPU on the same module"
    assert "tensor_active_pct" not in first, "two samples less than 100 ms apart"
    assert (again["tensor_active_pct"], again["sm_active_pct"], again["dram_active_pct"]) == (12.5, 64, 40)
    assert "gr_engine_active_pct" not in again, "not a number is not a reading"
    assert "sm_clock_max_mhz" not in again, "what hardly changes is read rarely"
    assert (vendor.open, vendor.samples, desk.notes) == (0, 0, [])
    assert "nvmlDeviceGetPcieThroughput" not in vendor.calls


def test_groups_and_units_are_what_the_view_draws_by(desk: Desk) -> None:
    desk.cards(Card(gpm={2: 64.0}))
    with desk.reading() as read:
        desk.now_s += 0.2
        metrics = {metric.name: metric for metric, _ in read()}
    assert metrics["gpu_util_pct"].group == metrics["sm_active_pct"].group == "utilization"
    assert metrics["gpu_memory_used_bytes"].group == "memory" and metrics["sm_clock_mhz"].group == "detail"
    for metric in metrics.values():
        unit = {"pct": "%", "bytes": "bytes", "w": "W", "c": "C", "mhz": "MHz"}.get(metric.name.rpartition("_")[2])
        assert unit is None or metric.unit == unit


def test_what_is_not_supported_is_absent_never_zero_and_asked_once(desk: Desk) -> None:
    vendor = desk.cards(Card(util=None, energy_mj=None, gen=None, temperature=None))
    with desk.reading() as read:
        for _ in range(3):
            found = values(read())
            assert not {"gpu_util_pct", "gpu_energy_j", "pcie_gen", "gpu_temperature_c"} & found.keys()
            assert found["sm_clock_mhz"] == 1755
    assert vendor.calls["nvmlDeviceGetUtilizationRates"] == vendor.calls["nvmlDeviceGetTotalEnergyConsumption"] == 1
    assert desk.notes == []


def test_an_old_pynvml_lacks_functions(desk: Desk) -> None:
    vendor = desk.cards(Card(reasons=8))
    vendor.without = {"nvmlDeviceGetCurrentClocksEventReasons", "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetClockInfo"}
    found = desk.read_once()
    assert found["clock_limit_bits"] == 8 and "sm_clock_mhz" not in found


def test_nvml_fails_half_way(desk: Desk) -> None:
    lost, well = Card(uuid="GPU-a"), Card(uuid="GPU-b", util=(5, 5))
    vendor = desk.cards(lost, well)
    desk.uses_cuda(True, "a", "b")
    with desk.reading() as read:
        read()
        lost.failing = LOST
        found = read()
        assert values(found, 0) == {} and values(found, 1)["gpu_util_pct"] == 5
        assert len(desk.notes) == 1 and "GPU 0 stopped answering" in desk.notes[0]
        well.failing = LOST
        with pytest.raises(NVMLError, match="lost"):
            read()  # the poller takes the probe off now
    assert vendor.open == 0 and len(desk.notes) == 1


def test_one_failing_reading_does_not_take_the_card_off(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    card = Card()
    vendor = desk.cards(card)
    with desk.reading() as read:
        read()
        monkeypatch.setattr(vendor, "nvmlDeviceGetUtilizationRates", lambda card: (_ for _ in ()).throw(NVMLError(999)))
        found = values(read())
        assert "gpu_util_pct" not in found and found["gpu_energy_j"] > 0
        monkeypatch.undo()
        assert "gpu_util_pct" in values(read()), "an odd error is tried again"


@pytest.mark.parametrize("code", [NO_DRIVER, NO_LIBRARY, 18])
def test_no_driver_is_no_probe_and_no_word(desk: Desk, code: int) -> None:
    vendor = desk.cards(Card(), init_fails=code)
    with probe.opened(desk.scope) as read:
        assert read is None
    assert (probe.devices(), probe.driver_version(), vendor.open, desk.notes) == ((), "", 0, [])
    with probe.initialised() as access:
        assert access.problem == ("Driver/library version mismatch" if code == 18 else "no-driver")


def test_no_library_and_no_card(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    monkeypatch.setattr(probe, "VENDOR", None)
    with probe.opened(desk.scope) as read:
        assert read is None
    assert probe.devices() == ()
    vendor = desk.cards()
    with probe.opened(desk.scope) as read:
        assert read is None
    assert vendor.open == 0


def test_devices_and_driver(desk: Desk) -> None:
    vendor = desk.cards(Card(name="Tesla T4", uuid="GPU-t4", memory=15 * GIB, capability=(7, 5)))
    assert probe.devices() == (DeviceSetup(0, "Tesla T4", "GPU-t4", 15 * GIB, (7, 5)),)
    assert probe.driver_version() == "580.65.06"
    assert vendor.open == 0


CARDS = [Card(uuid=f"GPU-{letter}{letter}1", bus=f"0000:{n}0:00.0") for n, letter in enumerate("abcd")]


@pytest.mark.parametrize(
    ("allowed", "seen"),
    [
        (None, "abcd"),
        ("", ""),
        ("2,0", "ca"),
        (" 1 , 3", "bd"),
        ("1gpu", "b"),
        ("0,9,1", "a"),  # what names nothing hides itself and all after it
        ("-1", ""),
        ("NoDevFiles", ""),
        ("1,1", ""),
        ("GPU-dd1,GPU-aa", "da"),
        ("GPU-", ""),  # ambiguous
        ("GPU-zz,GPU-aa1", ""),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(allowed: str | None, seen: str) -> None:
    vendor = StubNvml(*CARDS)
    vendor.open = 1
    sight = look(vendor, environ={} if allowed is None else {"CUDA_VISIBLE_DEVICES": allowed})
    assert "".join(gpu.uuid[4] for gpu in sight.gpus) == seen
    assert [gpu.index for gpu in sight.gpus] == list(range(len(seen))) and sight.cards == 4


def test_torchs_order_wins_over_nvmls() -> None:
    vendor = StubNvml(*CARDS)
    vendor.open = 1
    sight = look(vendor, ("cc1", "GPU-aa1"), {"CUDA_VISIBLE_DEVICES": "0,2"})
    assert [(gpu.index, gpu.uuid) for gpu in sight.gpus] == [(0, "GPU-cc1"), (1, "GPU-aa1")]
    strange = look(vendor, ("unknown", "dd1"), {})
    assert [(gpu.index, gpu.uuid) for gpu in strange.gpus] == [(1, "GPU-dd1")] and "1 of the GPUs" in strange.note
    alone = StubNvml(CARDS[1])
    alone.open = 1
    assert [gpu.uuid for gpu in look(alone, ("unknown",), {}).gpus] == ["GPU-bb1"], "a virtual machine's only card"


@pytest.mark.parametrize(
    ("refused", "allowed", "seen"),
    [
        ("a", "0", "b"),  # CUDA numbers what it may open
        ("abd", "0", "c"),
        ("ab", "0,1", "cd"),
        ("ab", "1,0", "dc"),
        ("ab", None, "cd"),
        ("a", "3", ""),  # the cgroup leaves numbers 0 to 2
        ("a", "GPU-aa1", ""),
        ("a", "GPU-dd1", "d"),
        ("abcd", "0", ""),
    ],
)
def test_cards_that_a_cgroup_forbids_take_no_number(refused: str, allowed: str | None, seen: str) -> None:
    vendor = StubNvml(*(replace(card, refused=card.uuid[4] in refused) for card in CARDS))
    vendor.open = 1
    environ = {} if allowed is None else {"CUDA_VISIBLE_DEVICES": allowed}
    sight = look(vendor, environ=environ)
    assert "".join(gpu.uuid[4] for gpu in sight.gpus) == seen
    assert [gpu.index for gpu in sight.gpus] == list(range(len(seen)))
    assert (sight.cards, sight.refused, sight.note) == (4, len(refused), "")
    assert sight.sure == (len(refused) == 3)
    named = look(vendor, ("dd1",), environ)
    assert [gpu.uuid for gpu in named.gpus] == ([] if "d" in refused else ["GPU-dd1"]), "what torch names, or nothing"


def test_a_forbidden_card_of_another_kind_makes_no_order_unsure() -> None:
    vendor = StubNvml(Card(name="P100", refused=True), Card(name="A5000", uuid="GPU-y"), Card(name="A5000"))
    vendor.open = 1
    assert look(vendor, environ={}).note == ""


def test_cards_are_looked_up_again_when_the_cell_initialises_cuda(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """The cell sets CUDA_VISIBLE_DEVICES=2 itself, before torch initialises CUDA; another program uses card a."""
    theirs, ours = (
        Card(uuid=f"GPU-{one}", util=(util, 0), used=used * GIB, gpm={1: 50.0})
        for one, util, used in (("a", 97, 70), ("c", 40, 5))
    )
    vendor = desk.cards(theirs, Card(uuid="GPU-b"), ours)
    with desk.reading() as read:
        desk.now_s += 0.5
        before = read()
        assert values(before, 0)["driver_cuda"] == 13000 and values(before, 2)["gpu_memory_total_bytes"] == 141 * GIB
        others = {"gpu_util_pct", "gpu_memory_used_bytes", "gpu_temperature_c", "other_processes"}
        assert not others & values(before, 0).keys(), "nobody knows yet which card is torch's first"
        desk.uses_cuda(True, "c")
        after = read()
        assert values(after, 0)["gpu_util_pct"] == 40 and values(after, 0)["gpu_memory_used_bytes"] == 5 * GIB
        assert values(after, 0)["sm_clock_max_mhz"] == 1980, "what is read rarely is read of the new card at once"
        assert {metric.device for metric, _ in after} == {0}
        calls = vendor.calls["nvmlDeviceGetHandleByIndex"]
        monkeypatch.setattr(probe, "cuda_in_use", lambda: pytest.fail("asked again"))
        desk.now_s += 0.5
        assert values(read(), 0)["gr_engine_active_pct"] == 50
        assert vendor.calls["nvmlDeviceGetHandleByIndex"] == calls, "looked up once"
    assert (vendor.open, vendor.samples, desk.notes) == (0, 0, [])


def test_a_card_that_the_cell_makes_visible_is_read_from_then_on(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    desk.cards(Card(uuid="GPU-a"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with desk.reading() as read:
        assert read() == []
        desk.uses_cuda(True, "a")
        assert values(read())["gpu_util_pct"] == 71


def test_the_only_card_is_read_before_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    desk.cards(Card(uuid="GPU-a", refused=True), Card(uuid="GPU-b", util=(12, 0)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert desk.read_once()["gpu_util_pct"] == 12


@pytest.mark.parametrize(("told", "uuid"), [("cc", "MIG-two"), ("MIG-one", "MIG-one"), ("MIG-two", "MIG-two")])
def test_torch_may_name_the_card_of_a_mig_slice(told: str, uuid: str) -> None:
    card = Card(uuid="GPU-cc", slices=[Card(uuid=f"MIG-{one}") for one in ("one", "two")])
    vendor = StubNvml(card)
    vendor.open = 1
    sight = look(vendor, (told,), {"CUDA_VISIBLE_DEVICES": "MIG-two"})
    assert [(gpu.index, gpu.uuid, gpu.mig) for gpu in sight.gpus] == [(0, uuid, True)]


def test_unlike_cards_are_numbered_by_bus_with_a_note() -> None:
    vendor = StubNvml(
        Card(name="T1", uuid="GPU-x", bus="0000:90:00.0"), Card(name="H1", uuid="GPU-y", bus="0000:10:00")
    )
    vendor.open = 1
    sight = look(vendor, environ={})
    assert [gpu.uuid for gpu in sight.gpus] == ["GPU-y", "GPU-x"] and "CUDA_DEVICE_ORDER" in sight.note
    assert look(vendor, environ={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}).note == ""


@pytest.mark.parametrize("allowed", [None, "0", "MIG-two"])
def test_a_mig_slice(monkeypatch: pytest.MonkeyPatch, desk: Desk, allowed: str | None) -> None:
    slices = [Card(name=f"MIG {n}", uuid=f"MIG-{n}", memory=20 * GIB, util=None) for n in ("one", "two")]
    slices[1].gpm, slices[0].gpm = {5: 44.0}, {5: 11.0}
    desk.cards(Card(util=None, gpm={5: 99.0}, slices=slices))
    if allowed:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", allowed)
    desk.uses_cuda(True)
    with desk.reading() as read:
        desk.now_s += 0.5
        found = values(read())
    assert found["gpu_memory_total_bytes"] == 20 * GIB and "gpu_util_pct" not in found
    assert found["tensor_active_pct"] == (44.0 if allowed == "MIG-two" else 11.0), "its own slice's, not the card's"
    assert found["gpu_energy_j"] == 1000, "the card's: a slice has none"
    assert len(desk.notes) == 1 and "MIG slice" in desk.notes[0]


@pytest.mark.parametrize(
    ("processes", "in_use", "whole", "told"),
    [
        ([], False, False, None),  # a container that hides the list
        ([], True, False, None),
        ([], False, True, (0, 0)),
        ([], True, True, None),
        ([(1, 3 * GIB), (os.getpid(), GIB)], True, False, (1, 3 * GIB)),
        ([(1, None)], False, False, (1, None)),
        ([(1, GIB)], True, False, None),  # another namespace: one of them may be this process
        (None, False, False, None),
    ],
)
def test_other_processes(desk: Desk, processes: Any, in_use: bool, whole: bool, told: Any) -> None:
    desk.cards(Card(processes=processes))
    desk.uses_cuda(in_use)
    desk.sees_every_process(whole)
    found = desk.read_once()
    assert (found.get("other_processes"), found.get("other_processes_bytes")) == (told or (None, None))


def test_linux_own_processes_are_seen_outside_of_containers_alone(tmp_path: Path) -> None:
    for name, whole in (("kthreadd", True), ("bash", False)):
        (tmp_path / name).write_text(f"{name}\n")
        assert neighbours.sees_every_process(tmp_path / name) is whole
    assert not neighbours.sees_every_process(tmp_path / "no Linux")


def test_how_busy_others_are_is_asked_since_the_reading_before(desk: Desk) -> None:
    card = Card(busy_for=[(7, 1, 90)])
    desk.cards(card)
    with desk.reading() as read:
        assert values(read())["other_processes_util_pct"] == 90
        card.busy_for = [(7, 1, 90), (9, 1, 10)]
        desk.now_s += 10.0
        assert values(read())["other_processes_util_pct"] == 10, "what NVML still keeps of the time before is over"


@pytest.mark.parametrize(
    ("samples", "in_use", "told"),
    [
        ([(7, 1, 40), (8, 1, 60)], False, 50.0),  # two samples of one process
        ([(7, 1, 40), (8, 2, 30)], False, 70.0),  # one sample of each of two: each with a time stamp of its own
        ([(7, 1, 40), (8, os.getpid(), 50)], True, 40.0),
        ([(7, os.getpid(), 50)], True, 0.0),
        ([(7, 1, 80), (7, 2, 80)], False, 100.0),
        ([(7, 1, 40), (8, 2, 4_294_967_295)], False, 40.0),  # no per cent
        ([(7, 1, 40)], True, None),  # ids of another namespace
        ([], False, None),
        (None, False, None),
    ],
)
def test_how_busy_others_keep_the_card(desk: Desk, samples: Any, in_use: bool, told: float | None) -> None:
    desk.cards(Card(busy_for=samples))
    desk.uses_cuda(in_use)
    assert desk.read_once().get("other_processes_util_pct") == told


class StubTorch:
    """As much of torch as the probe may touch: anything else would be an AttributeError."""

    def __init__(self) -> None:
        self.version, self.awake = SimpleNamespace(cuda="13.0"), False
        self.now, self.peak, self.reserved, self.retries = 0, 0, 0, 3
        self.cuda = SimpleNamespace(
            is_initialized=lambda: self.awake,
            device_count=lambda: 1,
            memory_stats_as_nested_dict=self.stats,
            get_arch_list=lambda: ["sm_80", "sm_90"],
            get_device_capability=lambda index: (9, 0),
        )
        self.backends = SimpleNamespace(mps=SimpleNamespace(is_available=lambda: False))
        self.mps = SimpleNamespace()

    def stats(self, device: int) -> dict[str, Any]:
        assert self.awake, "a probe must not wake the device"
        return {
            "allocated_bytes": {"all": {"current": self.now, "peak": self.peak}},
            "reserved_bytes": {"all": {"current": self.reserved, "peak": self.reserved}},
            "inactive_split_bytes": {"all": {"current": 70}},
            "num_alloc_retries": self.retries,
        }


def test_torch_is_asked_for_its_cards_once_the_program_uses_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = StubTorch()

    def properties(index: int) -> Any:
        assert torch.awake, "this would initialise CUDA"
        return SimpleNamespace(uuid=f"aa{index}")

    torch.cuda.get_device_properties = properties
    torch.cuda.device_count = lambda: 2 if torch.awake else pytest.fail("this would initialise CUDA")
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert torch_memory.device_uuids() == ()
    torch.awake = True
    assert torch_memory.device_uuids() == ("aa0", "aa1")


def test_torchs_allocator(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    torch = StubTorch()
    torch.retries = 0
    monkeypatch.setitem(sys.modules, "torch", torch)
    with desk.reading(torch_memory.opened) as read:
        assert read() == []
        torch.awake = True
        assert read() == [], "nothing was ever allocated"
        torch.now, torch.peak, torch.reserved = 100, 900, 1000
        assert values(read()) == {
            "torch_allocated_bytes": 100,
            "torch_reserved_bytes": 1000,
            "torch_peak_bytes": 900,
            "torch_alloc_retries": 0,
            "torch_inactive_split_bytes": 70,
            "architecture_support": 2,
        }
        torch.now, torch.peak, torch.retries = 300, 950, 2
        found = values(read())
        assert (found["torch_peak_bytes"], found["torch_alloc_retries"]) == (950, 2)
        assert "architecture_support" not in found, "what does not change is asked once"


def test_a_trials_copies_are_no_memory_of_the_program(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    torch = StubTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    holder = type("Copies", (), {})()
    torch_memory.hold(holder, {0: 40, 1: 7})
    with desk.reading(torch_memory.opened) as read:
        torch.awake = True
        torch.now, torch.peak, torch.reserved = 100, 900, 1000
        read()
        torch.peak = 950
        found = values(read())
    names = ("torch_allocated_bytes", "torch_reserved_bytes", "torch_peak_bytes")
    assert [found[name] for name in names] == [60, 960, 910]


def test_an_old_peak_is_not_this_runs(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    torch = StubTorch()
    torch.awake, torch.now, torch.peak, torch.reserved = True, 100, 5000, 6000
    monkeypatch.setitem(sys.modules, "torch", torch)
    with desk.reading(torch_memory.opened) as read:
        for torch.now in (100, 700, 200):
            assert "torch_peak_bytes" not in values(read()), "a reading now and then is no peak"
        torch.peak = 5001
        assert values(read())["torch_peak_bytes"] == 5001
        torch.peak = torch.now = 300  # the user's code reset it
        assert values(read())["torch_peak_bytes"] == 5001, "the highest so far"


def test_what_was_reached_before_the_first_reading_is_the_runs_own(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    torch = StubTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with desk.reading(torch_memory.opened) as read:
        torch.awake, torch.now, torch.peak, torch.reserved = True, 100, 900, 1000
        found = values(read())
        assert (found["torch_peak_bytes"], found["torch_alloc_retries"]) == (900, 3)


def test_what_a_process_holds_is_without_pages_of_files(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text(
        "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 300 kB\nRssFile:\t 500 kB\nRssShmem:\t 100 kB\nVmSwap:\t 8 kB\n"
    )
    assert host.held_bytes(status) == (408 << 10, 8 << 10)
    assert host.held_bytes(tmp_path / "none") is None
    vmstat = tmp_path / "vmstat"
    vmstat.write_text("nr_free 5\npswpin 3\npswpout 9\n")
    assert host.swapped_in_bytes(vmstat) == 3 * os.sysconf("SC_PAGE_SIZE")
    assert host.swapped_in_bytes(tmp_path / "none") is None


def test_what_a_child_has_used_is_known_to_less_than_a_tick(tmp_path: Path) -> None:
    process = SimpleNamespace(pid=5, cpu_times=lambda: SimpleNamespace(user=0.01, system=0.02))
    assert children.cpu_s(process, tmp_path) == 0.03
    folder(tmp_path, {"5/task/5/schedstat": "31000000 5 6\n", "5/task/6/schedstat": "7000000 1 2\n"})
    assert children.cpu_s(process, tmp_path) == pytest.approx(0.038)
    folder(tmp_path, {"5/task/6/schedstat": "0 0 0\n", "5/task/5/schedstat": "1000000 0 0\n"})
    assert children.cpu_s(process, tmp_path) == 0.03  # of threads that have ended the process alone tells
    folder(tmp_path, {"5/task/5/schedstat": ""})
    assert children.cpu_s(process, tmp_path) == 0.03


def test_without_the_kernels_lists_the_machine_is_walked_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "7" / "task" / "7").mkdir(parents=True)
    assert children.pids(7, tmp_path) is None and children.pids(8, tmp_path) is None
    for pid, listed in {7: "8 9", 8: "10", 9: "", 10: ""}.items():
        folder(tmp_path, {f"{pid}/task/{pid}/children": listed})
    assert children.pids(7, tmp_path) == [8, 9, 10]
    monkeypatch.setattr(children, "pids", lambda of: None)
    now = 0.0
    found = children.Children(lambda: now)
    before = len(found())
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert len(found()) == before
        now = 1e4
        assert child.pid in {one.pid for one in found()}
        child.communicate(b"\n")


def test_busy_leaves_out_idle_and_waiting_and_counts_guests_once() -> None:
    times = psutil.cpu_times()._replace(**dict.fromkeys(psutil.cpu_times()._fields, 0.0))
    times = times._replace(user=6.0, system=1.0, idle=2.0)
    assert host.busy_and_total_s(times) == (7.0, 9.0)
    if hasattr(times, "guest"):
        assert host.busy_and_total_s(times._replace(guest=4.0, iowait=1.0)) == (7.0, 10.0)


def folder(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


V1 = "4:memory:/box/a\n3:cpu,cpuacct:/box/a\n"


QUOTAS: dict[str, tuple[dict[str, str], float | None]] = {
    "no groups": ({}, None),
    "v2": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
    "v2 without limit": ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
    "v2, the parent is tighter": (
        {
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/box/cpu.max": "400000 100000",
            "sys/fs/cgroup/pod/cpu.max": "50000 100000",
        },
        0.5,
    ),
    "v2, a path of the host": (
        {"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/cpu.max": "200000 100000"},
        2.0,
    ),
    "v1": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu,cpuacct/box/a/cpu.cfs_quota_us": "300000\n",
            "sys/fs/cgroup/cpu,cpuacct/box/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
        3.0,
    ),
    "v1, a path that is not here": (
        {
            "proc/self/cgroup": V1,
            "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "70000\n",
            "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        },
        0.7,
    ),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_the_containers_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    files, quota = QUOTAS[name]
    root = folder(tmp_path, files)
    assert cgroup.quota_cores(root) == quota
    monkeypatch.setattr(host, "affinity_cores", lambda: 2)
    assert host.usable_cores(root) == (2.0 if quota is None else min(2.0, quota))


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", "proc/vmstat": "nr_free_pages 5\noom_kill 7\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/x": "",
                "sys/fs/cgroup/a/memory.events": "oom_kill 3\n",
            },
            None,
        ),
        (
            {
                "proc/self/cgroup": "0::/box\n",
                "sys/fs/cgroup/box/memory.events": "oom 3\noom_kill 2\noom_group_kill 0\n",
            },
            2,
        ),
        (
            {
                "proc/self/cgroup": V1,
                "sys/fs/cgroup/memory/box/a/memory.oom_control": "under_oom 0\noom_kill 4\n",
                "sys/fs/cgroup/memory/memory.oom_control": "under_oom 0\noom_kill 9\n",
                "proc/vmstat": "oom_kill 11\n",
            },
            4,
        ),
        ({"proc/self/cgroup": V1, "sys/fs/cgroup/memory/box/a/memory.oom_control": "under_oom 0\n"}, None),
    ],
    ids=["no count", "the machine's alone", "the parent's alone", "v2", "v1, own group first", "v1 of an old kernel"],
)
def test_processes_killed_for_want_of_memory(tmp_path: Path, files: dict[str, str], kills: int | None) -> None:
    assert cgroup.oom_kills(folder(tmp_path, files)) == kills


def test_the_containers_memory_and_cpu_seconds(tmp_path: Path) -> None:
    root = folder(
        tmp_path,
        {
            "proc/self/cgroup": "0::/box\n",
            "sys/fs/cgroup/box/memory.max": f"{256 * MIB}\n",
            "sys/fs/cgroup/box/memory.current": f"{200 * MIB}\n",
            "sys/fs/cgroup/box/memory.stat": f"anon 5\ninactive_file {150 * MIB}\n",
            "sys/fs/cgroup/box/cpu.stat": "usage_usec 2500000\nuser_usec 1\n",
        },
    )
    assert cgroup.memory_bytes(root) == (256 * MIB, 50 * MIB)
    assert host.memory(root) == (206 * MIB, 256 * MIB)
    assert cgroup.cpu_seconds(root) == 2.5
    unlimited = folder(
        tmp_path / "v1", {"proc/self/cgroup": V1, "sys/fs/cgroup/memory/memory.limit_in_bytes": "9" * 19}
    )
    assert cgroup.memory_bytes(unlimited) is None


def test_under_a_quota_the_neighbours_load_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    used, clock = [10.0], [0.0]
    idle = psutil.cpu_times(percpu=True)
    busy = [one._replace(user=one.user + 100) for one in idle]  # the whole machine is busy
    moments = iter([idle, busy])
    monkeypatch.setattr(cgroup, "quota_cores", lambda root=None: 0.5)
    monkeypatch.setattr(cgroup, "cpu_seconds", lambda root=None: used[0])
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(moments))
    machine = host._Machine(lambda: clock[0])
    used[0], clock[0] = 10.2, 1.0
    assert machine.read()["cpu_util_pct"] == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("listed", "cores"),
    [("0-1\n", [0, 1]), ("0\n", [0]), ("0,2-4,9\n", [0, 2, 3, 4, 9]), ("\n", []), (None, [])],
)
def test_cores_that_are_switched_on(tmp_path: Path, listed: str | None, cores: list[int]) -> None:
    if listed is not None:
        (tmp_path / "online").write_text(listed)
    assert host.online_cores(tmp_path / "online") == cores


@pytest.mark.parametrize(
    ("online", "allowed", "busy"),
    [
        ([0, 2, 3], [2], 20.0),  # core 1 is off: the second of psutil's list is core 2
        ([0, 2, 3], [3], 30.0),
        ([0, 2, 3], [0, 2], 30.0),
        ([0, 1, 2], [1], 20.0),
        (list(range(8)), [4], 60.0),  # LXC lists the container's own cores, from 0 on
        ([], [], 60.0),  # macOS, Windows
    ],
)
def test_cores_that_are_switched_off_have_no_times(
    monkeypatch: pytest.MonkeyPatch, online: list[int], allowed: list[int], busy: float
) -> None:
    clock, idle = [0.0], psutil.cpu_times()._replace(**dict.fromkeys(psutil.cpu_times()._fields, 0.0))
    later = [idle._replace(user=float(pct), idle=100.0 - pct) for pct in (10, 20, 30)]
    moments = iter([[idle] * 3, later])
    monkeypatch.setattr(host, "online_cores", lambda: online)
    monkeypatch.setattr(host, "allowed_cores", lambda: allowed)
    monkeypatch.setattr(host, "usable_cores", lambda: 1.0)
    monkeypatch.setattr(cgroup, "quota_cores", lambda root=None: None)
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: next(moments))
    machine = host._Machine(lambda: clock[0])
    clock[0] = 1.0
    assert machine.read()["cpu_util_pct"] == pytest.approx(busy)


def test_the_real_pynvml_has_what_is_asked_of_it(desk: Desk) -> None:
    vendor = desk.cards(Card(gpm={2: 64.0}, c2c=(10, 44_712), reasons=4, processes=[(1, GIB)]))
    with desk.reading() as read:
        for _ in range(3):
            desk.now_s += 100.0
            read()
    assert gather.gathered().driver == vendor.driver
    assert len(vendor.calls) > 30
    assert [name for name in sorted(vendor.calls) if not hasattr(pynvml, name)] == []
    assert {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    } == gauges.UNSUPPORTED
    assert {pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_LIBRARY_NOT_FOUND} == probe._NO_DRIVER
    assert (gauges.CLOCK_SM, gauges.TEMPERATURE_GPU) == (pynvml.NVML_CLOCK_SM, pynvml.NVML_TEMPERATURE_GPU)
    spelled = {"sm_active_pct": "SM_UTIL", "sm_occupancy_pct": "SM_OCCUPANCY", "tensor_active_pct": "ANY_TENSOR_UTIL"}
    spelled |= {"dram_active_pct": "DRAM_BW_UTIL", "gr_engine_active_pct": "GRAPHICS_UTIL"}
    for number, form in activity.METRICS.items():
        assert number == getattr(pynvml, f"NVML_GPM_METRIC_{spelled[form[0]]}")


def test_gpm_fills_the_vendors_own_structure(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    vendor = desk.cards(Card(gpm={}))
    monkeypatch.setattr(vendor, "c_nvmlGpmMetricsGet_t", pynvml.c_nvmlGpmMetricsGet_t)
    monkeypatch.setattr(vendor, "nvmlGpmSampleAlloc", lambda: pynvml.c_nvmlGpmSample_t(), raising=False)
    monkeypatch.setattr(vendor, "nvmlGpmSampleGet", lambda card, sample: None, raising=False)

    def answer(get: Any) -> None:
        assert (get.version, get.numMetrics) == (1, len(activity.METRICS))
        get.metrics[3].value, get.metrics[4].nvmlReturn = 55.5, NOT_SUPPORTED
        assert get.metrics[3].metricId == pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL

    monkeypatch.setattr(vendor, "nvmlGpmMetricsGet", answer, raising=False)
    with desk.reading() as read:
        desk.now_s += 0.5
        found = values(read())
    assert found["tensor_active_pct"] == 55.5 and "dram_active_pct" not in found
