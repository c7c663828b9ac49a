"""The check-up: each kind of machine, judged from facts and through a stubbed NVML, and how it is told."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpu_doctor.machine.checkup import gather
from gpu_doctor.machine.checkup.check import CheckLine, Checkup, Facts, check, judged
from gpu_doctor.machine.checkup.facts import CardFacts, TorchFacts
from gpu_doctor.machine.nvml import neighbours, probe
from tests.support.html_page import HOSTILE, Page
from tests.support.stub_nvml import GIB, NO_DRIVER, Card, StubNvml

MIB = 1 << 20
CUDA_13 = TorchFacts(
    "2.13.0+cu130", "13.0", available=True, devices=1, arches=("sm_75", "sm_80", "sm_90", "compute_90")
)
CPU_ONLY = TorchFacts("2.13.0+cpu")
HOST = Facts(usable_cores=16, os_cores=16, affinity_cores=16, shm=(60 * GIB, 64 * GIB))
NO_GPU = dataclasses.replace(HOST, torch=CPU_ONLY, nvidia_on_bus=0)


def machine(monkeypatch: pytest.MonkeyPatch, *cards: Card, torch: TorchFacts = CUDA_13, **more: Any) -> Checkup:
    """The check-up of a machine with these cards, gathered through the stub."""
    host = {name: more.pop(name) for name in list(more) if hasattr(HOST, name)}
    environ = {name: more.pop(name) for name in list(more) if name.isupper()}
    monkeypatch.setattr(probe, "VENDOR", StubNvml(*cards, **more))
    monkeypatch.setattr(gather, "torch_facts", lambda: torch)
    monkeypatch.setattr(gather, "cuda_in_use", lambda: False)
    monkeypatch.setattr(gather, "device_uuids", tuple)
    monkeypatch.setattr(gather, "nvidia_on_bus", lambda: len(cards))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if "CUDA_VISIBLE_DEVICES" in environ:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", environ["CUDA_VISIBLE_DEVICES"])
    facts = gather.gathered()
    same = {name: getattr(HOST, name) for name in ("usable_cores", "os_cores", "affinity_cores", "shm")}
    return judged(dataclasses.replace(facts, **{**same, "start_method": "fork", **host}))


def line(checkup: Checkup, topic: str) -> CheckLine:
    found = [one for one in checkup.lines if one.topic == topic]
    assert len(found) == 1, f"{topic}: {found}"
    return found[0]


def not_ok(checkup: Checkup) -> dict[str, str]:
    return {one.topic: one.status for one in checkup.lines if one.status != "ok"}


def test_a_healthy_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, Card(util=(0, 0)))
    assert not_ok(checkup) == {}
    assert "torch and NVML both see 1 GPU: NVIDIA H200 (141 GiB)" in line(checkup, "GPU").found
    assert "supports CUDA 13.0" in line(checkup, "driver").found
    assert all(not one.to_do for one in checkup.lines)
    assert "MIG" not in str(checkup)


def test_a_t4_on_colab(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card("Tesla T4", memory=15 * GIB, used=0, util=(0, 0), capability=(7, 5), gen=1, gen_max=3)
    card.power_limit_mw = card.power_default_mw = 70_000
    card.processes = None
    torch = dataclasses.replace(CUDA_13, version="2.8.0+cu126", cuda="12.6", arches=("sm_70", "sm_75"))
    colab = {
        "usable_cores": 2.0,
        "os_cores": 2,
        "affinity_cores": 2,
        "shm": (6 * GIB, 6 * GIB),
    }
    checkup = machine(monkeypatch, card, torch=torch, driver="550.54.15", cuda=12040, **colab)
    assert not_ok(checkup) == {"other processes": "not measured"}
    assert "supports CUDA 12.4; torch is built for 12.6" in line(checkup, "driver").found
    assert "version compatibility" in line(checkup, "driver").found
    assert "compute capability 7.5" in line(checkup, "architecture").found


def test_a_shared_card(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, Card(processes=[(1, 20 * GIB), (2, 10 * GIB)]))
    assert not_ok(checkup) == {"other processes": "worth a look"}
    found = line(checkup, "other processes").found
    assert found == "2 other processes use the GPU and hold 30.0 GiB of 141 GiB."
    one = machine(monkeypatch, Card(processes=[(1, None)]))
    assert line(one, "other processes").found == "1 other process uses the GPU."


def test_signs_of_somebody_who_cannot_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    held = machine(monkeypatch, Card(used=40 * GIB, processes=None))
    assert "40.0 GiB of 141 GiB in use by a process that" in line(held, "other processes").found
    busy = machine(monkeypatch, Card(util=(88, 3)))
    assert "88 % busy, though this process" in line(busy, "other processes").found
    ours = judged(dataclasses.replace(HOST, cards=(CardFacts(memory_used_bytes=40 * GIB),), cuda_in_use=True))
    assert line(ours, "other processes").status == "not measured"


def test_a_mig_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    inside = Card("NVIDIA H100 MIG 1g.20gb", "MIG-one", memory=20 * GIB, used=0, util=None, processes=None)
    checkup = machine(monkeypatch, Card("NVIDIA H100", util=None, slices=[inside]))
    assert line(checkup, "MIG").status == "ok" and "slice with 20.0 GiB" in line(checkup, "MIG").found
    assert "NVIDIA H100 MIG 1g.20gb (20.0 GiB)" in line(checkup, "GPU").found


NO_CUDA = dataclasses.replace(CUDA_13, available=False, devices=0)
REFUSED = tuple(Card(uuid=f"GPU-{one}", bus=f"0000:{one}0:00.0", refused=True) for one in "123")


@pytest.mark.parametrize("allowed", [None, "0"])
def test_cards_that_a_cgroup_forbids_are_not_hidden_by_a_variable(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None
) -> None:
    found = line(machine(monkeypatch, *REFUSED, torch=NO_CUDA, visible_devices=allowed), "GPU")
    assert found.status == "worth a look" and "3 GPUs" in found.found and "may not open any" in found.found
    assert "CUDA_VISIBLE_DEVICES" not in found.found + found.to_do


def test_the_card_that_a_cgroup_leaves_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, *REFUSED, Card(name="NVIDIA A100", uuid="GPU-4"), CUDA_VISIBLE_DEVICES="0")
    assert line(checkup, "GPU").status == "ok" and "both see 1 GPU: NVIDIA A100" in line(checkup, "GPU").found
    assert "3 more" in line(checkup, "GPU").found


def test_a_number_that_the_cgroup_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, *REFUSED, Card(uuid="GPU-4"), torch=NO_CUDA, CUDA_VISIBLE_DEVICES="3")
    found = line(checkup, "GPU")
    assert "CUDA_VISIBLE_DEVICES='3'" in found.found and "may not open 3" in found.found and "from 0" in found.to_do


def test_cards_that_torch_uses_and_nvml_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = line(machine(monkeypatch, *REFUSED), "GPU")
    assert found.status == "not measured" and "torch sees 1 GPU" in found.found


def test_an_empty_list_in_a_container_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "sees_every_process", lambda: False)
    assert line(machine(monkeypatch, Card(util=(0, 0))), "other processes").status == "not measured"
    monkeypatch.setattr(neighbours, "sees_every_process", lambda: True)
    assert line(machine(monkeypatch, Card(util=(0, 0))), "other processes").status == "ok"


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = dataclasses.replace(CUDA_13, available=False, devices=0, arches=())
    checkup = machine(monkeypatch, Card(), torch=torch, init_fails=NO_DRIVER, driver_loaded=False)
    assert line(checkup, "driver").status == "wrong" and "no NVIDIA driver" in line(checkup, "driver").found
    outside = machine(monkeypatch, Card(), torch=torch, init_fails=NO_DRIVER, driver_loaded=True)
    assert line(outside, "driver").status == "worth a look" and "--gpus all" in line(outside, "driver").to_do
    assert "clocks" not in str(checkup) and "PCIe link" not in str(checkup), "nothing is said of what was not seen"


def test_a_driver_that_needs_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = dataclasses.replace(CUDA_13, available=False, devices=0)
    checkup = machine(monkeypatch, Card(), torch=torch, init_fails=18)
    found = line(checkup, "driver")
    assert (
        found.status == "wrong"
        and "Driver/library version mismatch" in found.found
        and "restart the machine" in found.to_do
    )


def test_a_driver_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = dataclasses.replace(CUDA_13, available=None, devices=0)
    checkup = machine(monkeypatch, Card(), torch=torch, driver="470.82.01", cuda=11040)
    found = line(checkup, "driver")
    assert found.status == "wrong"
    assert "470.82.01 supports CUDA 11.4; torch is built for 13.0" in found.found
    assert "a torch built for CUDA 11" in found.to_do
    assert line(checkup, "torch build").status == "not measured"
    forward = machine(monkeypatch, Card(), driver="535.1", cuda=12020)  # NVIDIA's forward-compatibility package
    assert line(forward, "driver").status == "ok"


def test_cpu_only_torch_beside_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, Card("Tesla T4"), torch=CPU_ONLY, cuda=12040)
    found = line(checkup, "torch build")
    assert found.status == "wrong" and "built for the CPU only" in found.found and "not on Tesla T4" in found.found
    assert "CUDA 12.4 or lower" in found.to_do
    assert not_ok(checkup) == {"torch build": "wrong", "other processes": "worth a look"}  # it is 71 % busy


@pytest.mark.parametrize(
    ("capability", "arches", "status"),
    [
        ((9, 0), ("sm_80", "sm_90"), "ok"),
        ((8, 9), ("sm_80",), "ok"),  # later minor of the same major
        ((9, 0), ("sm_90a",), "ok"),
        ((10, 0), ("sm_90a",), "wrong"),
        ((12, 0), ("sm_90", "compute_90"), "worth a look"),
        ((6, 1), ("sm_75", "sm_80", "compute_80"), "wrong"),
        ((8, 0), ("sm_86",), "wrong"),
        ((12, 0), ("sm_75", "sm_120"), "ok"),
    ],
)
def test_architecture(monkeypatch: pytest.MonkeyPatch, capability: Any, arches: Any, status: str) -> None:
    torch = dataclasses.replace(CUDA_13, arches=arches)
    assert line(machine(monkeypatch, Card(capability=capability), torch=torch), "architecture").status == status


def test_several_cards_of_which_one_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Card(uuid=f"GPU-{n}", bus=f"0000:{n}0:00.0", util=(0, 0)) for n in range(4)]
    cards[2].processes = [(1, 20 * GIB)]
    checkup = machine(monkeypatch, *cards, torch=dataclasses.replace(CUDA_13, devices=4))
    shared = [one for one in checkup.lines if one.topic == "other processes"]
    assert [one.status for one in shared] == ["ok", "worth a look"]
    assert shared[0].found.startswith("GPU 0, 1, 3: ") and shared[1].found.startswith("GPU 2: 1 other")


def test_cards_whose_order_is_not_known_before_torch_uses_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    cards = Card("Tesla T4", "GPU-t4", "0000:10:00.0"), Card(uuid="GPU-h200", bus="0000:20:00.0")
    two = dataclasses.replace(CUDA_13, devices=2)
    found = line(machine(monkeypatch, *cards, torch=two), "GPU order")
    assert found.status == "worth a look" and "CUDA counts the fastest first" in found.found
    assert found.to_do.startswith("Set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    assert "GPU order" not in [one.topic for one in machine(monkeypatch, *cards, torch=two).lines]


def test_cards_are_matched_with_torchs_by_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA counts the fastest first; NVML by bus: once CUDA is in use, the UUIDs say which is which."""
    cards = Card("Tesla T4", "GPU-t4", "0000:10:00.0"), Card(uuid="GPU-h200", bus="0000:20:00.0")
    monkeypatch.setattr(probe, "VENDOR", StubNvml(*cards))
    monkeypatch.setattr(gather, "torch_facts", lambda: dataclasses.replace(CUDA_13, devices=2))
    monkeypatch.setattr(gather, "cuda_in_use", lambda: True)
    monkeypatch.setattr(gather, "device_uuids", lambda: ("h200", "t4"))
    facts = gather.gathered()
    assert [(one.index, one.name) for one in facts.cards] == [(0, "NVIDIA H200"), (1, "Tesla T4")]
    assert facts.order_note == ""


def test_nvml_and_torch_disagree_and_hidden_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    checkup = machine(monkeypatch, Card(), Card(uuid="GPU-b"))
    assert (
        line(checkup, "GPU").status == "worth a look" and "torch sees 1 GPU, NVML 2 GPUs" in line(checkup, "GPU").found
    )
    hidden = judged(dataclasses.replace(NO_GPU, cards_installed=2, visible_devices="", nvml_problem=""))
    found = line(hidden, "GPU").found
    assert "2 GPUs in the machine" in found and "CUDA_VISIBLE_DEVICES=''" in found


def test_torch_is_not_asked_before_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = dataclasses.replace(CUDA_13, available=None, devices=0)
    checkup = machine(monkeypatch, Card(util=(0, 0)), torch=torch)
    assert not_ok(checkup) == {} and "can use" not in str(checkup)
    assert line(checkup, "GPU").found == "NVML sees 1 GPU: NVIDIA H200 (141 GiB)."
    no_nvml = machine(monkeypatch, Card(), torch=torch, init_fails=NO_DRIVER, driver_loaded=True)
    assert not_ok(no_nvml) == {"driver": "not measured", "torch build": "not measured"}
    no_card = machine(monkeypatch, torch=torch)
    assert line(no_card, "GPU").found == "No GPU: training runs on the CPU."


def test_a_container_without_cudas_part_of_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = dataclasses.replace(CUDA_13, available=False, devices=0)
    found = line(machine(monkeypatch, Card(util=(0, 0)), torch=torch), "torch build")
    assert found.status == "wrong" and "NVIDIA_DRIVER_CAPABILITIES" in found.to_do


def test_without_nvml_library_but_with_a_gpu() -> None:
    checkup = judged(dataclasses.replace(HOST, torch=CUDA_13, nvml_problem="no-library"))
    assert line(checkup, "GPU").status == line(checkup, "driver").status == "not measured"
    assert line(checkup, "driver").to_do == "pip install nvidia-ml-py"


@pytest.mark.parametrize("problem", ["no-driver", "no-library", ""])
def test_no_gpu_is_one_calm_line_and_nothing_invented(problem: str) -> None:
    checkup = judged(dataclasses.replace(NO_GPU, nvml_problem=problem))
    assert checkup.lines[0] == CheckLine("GPU", "ok", "No GPU: training runs on the CPU.")
    assert {one.topic for one in checkup.lines[1:]} == {"CPU cores", "/dev/shm", "worker start"}
    assert "NVIDIA" not in str(checkup) and "CUDA" not in str(checkup)


def test_apple_and_amd() -> None:
    apple = judged(dataclasses.replace(NO_GPU, torch=dataclasses.replace(CPU_ONLY, mps=True), nvidia_on_bus=None))
    assert "MPS" in line(apple, "GPU").found
    rocm = TorchFacts("2.13.0+rocm7", hip="7.0", available=True, devices=2)
    amd = judged(dataclasses.replace(HOST, torch=rocm))
    assert "ROCm" in line(amd, "GPU").found and line(amd, "GPU").status == "ok"
    assert "driver" not in [one.topic for one in amd.lines]


@pytest.mark.parametrize(
    ("change", "topic", "status", "said"),
    [
        (
            {"usable_cores": 4.0, "os_cores": 64, "affinity_cores": 64},
            "CPU cores",
            "worth a look",
            "4 of the machine's 64",
        ),
        (
            {"usable_cores": 1.5, "os_cores": 8, "affinity_cores": 8},
            "CPU cores",
            "worth a look",
            "container's CPU quota",
        ),
        ({"usable_cores": 4.0, "os_cores": 8, "affinity_cores": 4}, "CPU cores", "worth a look", "CPU affinity"),
        ({"usable_cores": 1.0, "os_cores": 1, "affinity_cores": 1}, "CPU cores", "worth a look", "1 core"),
        (
            {"usable_cores": 2.0, "os_cores": 2, "affinity_cores": 2, "physical_cores": 1},
            *("CPU cores", "worth a look", "hardware threads of 1 core"),
        ),
        (
            {"usable_cores": 16.0, "os_cores": 16, "affinity_cores": 16, "physical_cores": 8},
            *("CPU cores", "ok", "hardware threads of 8 cores"),
        ),
        ({"physical_cores": 16}, "CPU cores", "ok", "All 16 cores of the machine"),
        ({"shm": (64 * MIB, 64 * MIB)}, "/dev/shm", "wrong", "64 MiB of 64 MiB free"),
        ({"shm": (GIB, 2 * GIB)}, "/dev/shm", "worth a look", "1.0 GiB of 2.0 GiB"),
        ({"shm": None}, "/dev/shm", "not measured", "no /dev/shm"),
        ({"start_method": "spawn"}, "worker start", "worth a look", "start by spawn"),
        ({"start_method": "forkserver"}, "worker start", "worth a look", "start by forkserver"),
    ],
)
def test_the_host(change: dict[str, Any], topic: str, status: str, said: str) -> None:
    found = line(judged(dataclasses.replace(NO_GPU, **change)), topic)
    assert found.status == status and said in found.found
    assert bool(found.to_do) == (status in ("wrong", "worth a look"))


def test_nvidia_cards_on_the_bus(tmp_path: Path) -> None:
    assert gather.nvidia_on_bus(tmp_path) is None
    for slot, vendor, kind in [("a", "0x10de", "0x030200"), ("b", "0x10de", "0x040300"), ("c", "0x8086", "0x030000")]:
        folder = tmp_path / "sys/bus/pci/devices" / slot
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(kind + "\n")
    (tmp_path / "sys/bus/pci/devices/d").mkdir()
    assert gather.nvidia_on_bus(tmp_path) == 1, "a card's own sound device is no GPU"


def test_this_machine_can_be_checked() -> None:
    checkup = check()
    assert {"GPU", "CPU cores", "/dev/shm", "worker start"} <= {one.topic for one in checkup.lines}


# ---- how it is told --------------------------------------------------------------------------------------------------

TOLD = Checkup(
    (
        CheckLine("GPU", "ok", "1 GPU."),
        CheckLine("torch build", "wrong", "built for the CPU only " * 8, "Install another one."),
        CheckLine("RAM", "not measured", "unknown"),
    )
)


def test_in_a_terminal() -> None:
    lines = str(TOLD).splitlines()
    assert lines[0] == "Check-up of this machine: 1 wrong, 1 ok, 1 not measured"
    assert lines[1] == "  ✓ ok            GPU          1 GPU."
    assert lines[2].startswith("  ✗ wrong         torch build  built for")
    assert lines[-2].strip() == "-> Install another one."
    assert all(len(one) <= 110 for one in lines)


def test_as_plain_data() -> None:
    data = json.loads(json.dumps(TOLD.to_dict()))
    assert data["summary"] == "1 wrong, 1 ok, 1 not measured"
    assert data["lines"][0] == {"topic": "GPU", "status": "ok", "found": "1 GPU.", "to_do": ""}


def test_html_is_self_contained_and_escaped() -> None:
    facts = dataclasses.replace(
        HOST, torch=CUDA_13, cards=(CardFacts(name=HOSTILE),), cards_installed=1, nvml_problem=HOSTILE
    )
    page = judged(facts)._repr_html_()
    assert "<script>alert('x')</script>" in Page(page).text
    assert "table-layout:auto" in page, "JupyterLab's equally wide columns put the marks over the topics"
    assert "url(" not in page and "http" not in page.replace("https://", "")
    assert "color:#" not in page, "the text keeps the page's colour, light or dark"
