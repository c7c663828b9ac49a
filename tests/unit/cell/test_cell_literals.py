"""Any literal at a cell's top as a knob: every form of it tried for real, written into the cell, and run as written."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_doctor
from gpu_doctor.cell import literals
from gpu_doctor.cell.literals import Source
from gpu_doctor.recording import Setup
from gpu_doctor.report.panel.controls import checked_request, controls
from gpu_doctor.trials import knobs
from gpu_doctor.trials.knobs.cell_variables import knobs_of, parse_variations, variables_of
from gpu_doctor.trials.knobs.knob import Refused


def test_names_that_share_a_literal_take_one_value_and_the_panel_offers_it_once() -> None:
    case = gpu_doctor.case("a = b = 3\nlr, n = 0.5, 4\n")
    with pytest.raises(Refused, match="a and b are assigned one literal"):
        case.run({"vary.a": 4, "vary.b": 5})
    case.run({"vary.a": 4, "vary.b": 4, "vary.n": 7, "vary.lr": 1})
    assert [case.namespace[name] for name in ("a", "b", "lr", "n")] == [4, 4, 1.0, 7]
    table = knobs_of(case.source, {})
    assert list(table) == ["vary.a", "vary.lr", "vary.n"] and "a and b" in table["vary.a"].changes
    assert list(knobs_of(case.source, {"b": ["9"]})) == ["vary.b", "vary.lr", "vary.n"]
    conf: dict[str, Any] = {"conf": type("Conf", (), {})}
    both = gpu_doctor.case("conf.lr = lr = 3", conf)
    both.run({"vary.lr": 5})
    assert (conf["lr"], conf["conf"].lr) == (5, 5) and both.code({"vary.lr": 5}) == "conf.lr = lr = 5"


def test_other_literals_are_only_offered_where_a_person_names_values() -> None:
    source = "betas = (0.9, 0.99)\nclip = None\nname = '<b>'\n"
    assert variables_of(source) == {"betas": "(0.9, 0.99)", "clip": "None", "name": "<b>"}
    assert knobs_of(source, {}) == {}
    named = parse_variations(["betas=(0.9,0.99),(0.8,.95)", "clip=None,1.0,'a,b'", "name='x,y',it's,z"])
    table = {**knobs.KNOBS, **knobs_of(source, named)}
    shown = {one.name: one for one in controls(table, Setup(torch_version="2"), True)}
    values = {name: [choice.value for choice in shown[f"vary.{name}"].choices] for name in named}
    assert values == {
        "betas": ["(0.9, 0.99)", "(0.8, 0.95)"],
        "clip": ["None", "1.0", "'a,b'"],
        "name": ["<b>", "x,y", "it's", "z"],
    }
    assert [choice.label for choice in shown["vary.betas"].choices] == ["(0.9, 0.99) (as written)", "(0.8, 0.95)"]
    for name, several in values.items():
        for value in several:  # a page sends texts back, and they mean what they meant
            taken = checked_request({"ask": "trial", "settings": {f"vary.{name}": value}}, table)["settings"]
            assert taken == {f"vary.{name}": value}
            assert type(taken[f"vary.{name}"]) is (str if name == "name" else Source)
    with pytest.raises(ValueError, match="betas must be a tuple"):
        checked_request({"ask": "trial", "settings": {"vary.betas": "__import__('os')"}}, table)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("(0.9,0.99), (0.8,0.95)", ["(0.9,0.99)", "(0.8,0.95)"]),
        ("[1,(2,3)],{4:[5,6]}", ["[1,(2,3)]", "{4:[5,6]}"]),
        (r"'a,b',b'c,\',d',it's,x", ["'a,b'", r"b'c,\',d'", "it's", "x"]),
        ("(')',1),2", ["(')',1)", "2"]),
        (":),2", [":)", "2"]),
        ("1,,2", ["1", "", "2"]),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotations(text: str, parts: list[str]) -> None:
    assert literals.parts(text) == parts


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("betas=(0.9,0.99", r"^'betas=\(0.9,0.99' .* a bracket is not closed"),
        ("betas='a,b", "a quotation is not closed: --vary takes"),
        ("betas=0.9,0.99", r"^betas must be a tuple, as in the cell \(\(0.9, 0.99\)\), not 0.9\.$"),
        ("betas=[0.9,0.99]", r"^betas must be a tuple, as in the cell \(\(0.9, 0.99\)\), not \[0.9, 0.99\]\.$"),
        ("betas=(0.9,f())", r"^betas must be a tuple, as in the cell \(\(0.9, 0.99\)\), not '\(0.9,f\(\)\)'\.$"),
        ("lr=None", r"^lr must be a number, as in the cell \(0.1\), not None\.$"),
        ("lr=" + "9" * 400, r"^lr takes a finite number\.$"),
        ("clip=1e999", r"^clip takes a finite number\.$"),
        ("data=3", "^To vary data, assign it a plain value"),
    ],
)
def test_a_value_that_does_not_fit_is_answered_in_a_sentence(given: str, said: str) -> None:
    source = "betas = (0.9, 0.99)\nlr = .1\nclip = None\ndata = (1, load())\n"
    with pytest.raises(ValueError, match=said):
        knobs_of(source, parse_variations([given]))


@pytest.mark.parametrize("value", [(1, float("nan")), [object()], {"a": float("inf")}])
def test_a_value_from_python_that_is_no_literal_is_refused_before_anything_runs(value: Any) -> None:
    ns: dict[str, Any] = {"ran": []}
    with pytest.raises(Refused, match=r"vary\.a takes a literal"):
        gpu_doctor.case("a = None\nran.append(a)", ns).run({"vary.a": value})
    assert ns["ran"] == []


class Loud(int):
    """A number that stands in code as a call."""

    def __repr__(self) -> str:
        return "ran.append('called')"


def test_what_a_value_calls_itself_is_never_run() -> None:
    ns: dict[str, Any] = {"ran": []}
    case = gpu_doctor.case("a = None\nb = 1\n", ns)
    for settings in ({"vary.a": Loud(3)}, {"vary.b": Loud(3)}):
        with pytest.raises(Refused, match=r"written as a literal|b must be a whole"):
            case.run(settings)
        assert not case.fix(settings, []).complete and ns["ran"] == []


def test_a_traceback_keeps_its_line_behind_a_literal_of_several_lines() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        gpu_doctor.case("a = [\n1,\n2]\n1 / len(a[1:])").run({"vary.a": [3]})  # type: ignore[dict-item]
    assert raised.traceback[-1].lineno + 1 == 4


def test_a_fix_leaves_alone_what_is_equal_already() -> None:
    case = gpu_doctor.case("betas = (9e-1, .99)\nlr = 1e-3\n")
    assert case.fix({"vary.betas": (0.9, 0.99), "vary.lr": 0.001}, []).cells == ()  # type: ignore[dict-item]
    assert case.fix({"vary.betas": (0.9, 0.95)}, []).cells[0].after == "betas = (9e-1, 0.95)\nlr = 1e-3\n"  # type: ignore[dict-item]
