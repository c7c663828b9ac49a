"""What `print` and a cell's last expression show of our objects, with and without the extension: words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

import gpu_doctor
from gpu_doctor import report
from tests.support.html_page import Page
from tests.support.recordings import starved
from tests.support.trial_parts import effects, plan, searched, swept, trials


@pytest.fixture(params=["bare", "with the extension"])
def shell(request: pytest.FixtureRequest) -> Iterator[InteractiveShell]:
    one = InteractiveShell()
    if request.param == "bare":
        yield one
        return
    gpu_doctor.load_ipython_extension(one)
    yield one
    gpu_doctor.unload_ipython_extension(one)


def shown(shell: InteractiveShell, thing: Any) -> dict[str, str]:
    """What IPython sends of a cell's last expression, by mime type."""
    bundle, _ = shell.display_formatter.format(thing)
    return dict(bundle)


def test_every_result_is_shown_as_print_writes_it(shell: InteractiveShell) -> None:
    tried = effects(trials())
    made = plan(tried)
    results = (tried[0], made, made.fix, swept(), searched(), gpu_doctor.check(), gpu_doctor.diagnose(starved()))
    for one in (*results, starved(), gpu_doctor.measure(starved())):
        assert shown(shell, one)["text/plain"] == str(one).rstrip("\n")
        assert not str(one).startswith((f"{type(one).__name__}(", "<")), "words, no repr"


def test_in_a_list_too(shell: InteractiveShell) -> None:
    one = effects(trials())[0]
    assert shown(shell, [one])["text/plain"] == f"[{one}]"


def test_a_diagnosis_a_plan_a_fix_and_a_check_up_have_html(shell: InteractiveShell) -> None:
    made = plan(effects(trials()))
    for one in (gpu_doctor.diagnose(starved()), made, made.fix, gpu_doctor.check()):
        assert "<" in shown(shell, one)["text/html"]
    page = Page(gpu_doctor.diagnose(starved())._repr_html_())
    assert "num_workers" in page.text and any(alt.startswith("Anatomy of a step: data wait") for alt in page.alts)
    assert "+ num_workers" in made._repr_html_() and "rgba(0,158,115" in made._repr_html_(), "waterfall and diff"


def test_a_diagnosis_says_of_itself_what_the_report_says_of_it() -> None:
    one = gpu_doctor.diagnose(starved())
    assert str(one) == report.text(report.Reported(one))
    assert one._repr_html_() == report.html(report.Reported(one))


def test_a_recording_a_case_and_vitals_in_a_few_words() -> None:
    one = starved(name="first", settings={"num_workers": 2})
    assert str(one) == "first, num_workers=2: 60 steps in 2.40 s, completed"
    case = gpu_doctor.case("x = 1", {}, name="my cell")
    assert str(case) == "my cell (0 runs, 0 trials): Not run yet: .run() runs it."
    case.run()
    assert str(case).startswith("my cell (1 run, 0 trials): No training step was seen")
    lines = str(gpu_doctor.measure(one)).splitlines()
    assert any(line.split() == ["data_wait_share", "0.75"] for line in lines) and "None" not in str(lines)


def test_programs_see_the_repr() -> None:
    assert repr(effects(trials())[0]).startswith("Effect(")
    assert repr(gpu_doctor.diagnose(starved())).startswith("Diagnosis(bottleneck=")


def test_showing_a_diagnosis_loads_nothing_that_lies_above_it() -> None:
    script = """if True:
        import sys
        from gpu_doctor.diagnosis import diagnose
        from tests.support.recordings import starved
        one = diagnose(starved())
        assert str(one) and one._repr_html_()
        print([name for name in sys.modules if name.startswith(("gpu_doctor.report", "gpu_doctor.trials"))])
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
