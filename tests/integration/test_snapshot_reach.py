"""What a real run trained with is put back where no name leads to it, and no library's names are copied."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch

import gpu_doctor
from gpu_doctor.trials.snapshot.snapshot import Snapshot
from gpu_doctor.trials.snapshot.walk import Walk
from tests.support.reaching import PARTS, comes_back, notebook


@pytest.mark.parametrize("wrapper", ["torch.no_grad()", "torch.inference_mode()", "torch.compile", "functools.cache"])
def test_a_decorated_function_does_not_bring_the_names_of_a_library(wrapper: str) -> None:
    space = notebook(
        f"def made():\n    seen = []\n    @{wrapper}\n    def f(x): seen.append(x); return seen\n    return f"
    )
    space["f"] = space["made"]()
    walk = Walk()
    walk.over([space], ())
    assert [one["__name__"] for one in walk.kept["module"]] == []
    Snapshot.take(space, extra=[space["f"]])
    assert any(type(one) is list and one is _seen_of(space["f"]) for one in walk.kept["list"])


def _seen_of(function: Any) -> Any:
    [cell] = importlib.import_module("inspect").unwrap(function).__closure__
    return cell.cell_contents


def test_what_a_run_trained_with_is_put_back_where_no_name_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer in an installed package, whose globals are none of the user's."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "some_hidden_trainer.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(folder))
    hidden = importlib.import_module("some_hidden_trainer")
    case = gpu_doctor.case("train()", {"__name__": "__main__", "train": hidden.train})
    case.run()
    before = [value.clone() for value in hidden.model.state_dict().values()]
    momentum = [one["momentum_buffer"].clone() for one in hidden.opt.state.values()]
    seed = hidden.loader.generator.get_state()
    assert case.trial({"threads": 1}, steps=6, seconds=8.0, pairs=1).speedup is not None
    assert all(map(torch.equal, before, hidden.model.state_dict().values()))
    assert all(map(torch.equal, momentum, [one["momentum_buffer"] for one in hidden.opt.state.values()]))
    assert torch.equal(seed, hidden.loader.generator.get_state())


LEARNS = "import numpy as np\nx, y = np.eye(4), [0, 1, 0, 1]\n"


@pytest.mark.parametrize(
    ("setup", "cell", "look"),
    [
        ("preprocessing.StandardScaler().partial_fit(x)", "s.partial_fit(2 * x)", "s.mean_, s.n_samples_seen_"),
        ("preprocessing.LabelEncoder().fit(y)", "s.fit(['a', 'b'])", "s.classes_"),
        ("linear_model.SGDClassifier().partial_fit(x, y, [0, 1])", "s.partial_fit(-x, y)", "s.coef_, s.t_"),
        ("cluster.MiniBatchKMeans(2, n_init=1).partial_fit(x)", "s.partial_fit(-x)", "s.cluster_centers_, s._counts"),
        (
            "neural_network.MLPClassifier(3, random_state=np.random.RandomState()).partial_fit(x, y, classes=[0, 1])",
            "s.partial_fit(-x, y)",
            "s.coefs_, s.t_, s._optimizer.t, s._optimizer.ms, s._random_state.get_state()[1].sum()",
        ),
        (
            "pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.SGDClassifier()).fit(x, y)",
            "s[0].partial_fit(-x); s.fit(-x, y)",
            "s[0].mean_, s[1].coef_",
        ),
    ],
)
def test_what_estimators_have_learned(setup: str, cell: str, look: str) -> None:
    """Scalers and models of scikit-learn that are fitted on the way, in the very loop that trains."""
    pytest.importorskip("sklearn")
    imports = "from sklearn import cluster, linear_model, neural_network, pipeline, preprocessing\n"
    comes_back(notebook(f"{LEARNS}{imports}s = {setup}"), cell, look)
