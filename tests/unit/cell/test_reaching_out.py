"""Requests and processes in the user's cells, read off their text."""

from __future__ import annotations

import ast
import multiprocessing
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_doctor.cell import NETWORK, PROCESSES, CellSource, reaches
from gpu_doctor.cell.syntax import imported


def found(text: str, **namespace: Any) -> list[tuple[str, str, int]]:
    return [(one.kind, one.what, one.line) for one in reaches(CellSource(text), namespace)]


@pytest.mark.parametrize(
    ("text", "kind", "what"),
    [
        ("import requests\nrequests.post('http://x')", NETWORK, "requests.post"),
        ("from requests import post\npost('http://x')", NETWORK, "post"),
        ("import urllib.request\nurllib.request.urlopen('http://x')", NETWORK, "urllib.request.urlopen"),
        ("import httpx as h\nh.get('http://x')", NETWORK, "h.get"),
        ("import socket\ns = socket.socket()\ns.connect(('x', 1))", NETWORK, "socket.socket"),
        ("import boto3\nboto3.client('s3').upload_file('a', 'b', 'c')", NETWORK, "boto3.client"),
        ("from huggingface_hub import HfApi\nHfApi().upload_folder()", NETWORK, "HfApi"),
        ("import smtplib\nwith smtplib.SMTP('x') as mail:\n    mail.send_message(1)", NETWORK, "smtplib.SMTP"),
        ("import subprocess\nsubprocess.run(['true'])", PROCESSES, "subprocess.run"),
        ("import os\nos.system('true')", PROCESSES, "os.system"),
        ("import os\nif os.fork() == 0:\n    pass", PROCESSES, "os.fork"),
        ("import multiprocessing as mp\nmp.Process(target=print).start()", PROCESSES, "mp.Process"),
        ("from multiprocessing import Pool\nwith Pool(2) as pool:\n    pool.map(abs, [1])", PROCESSES, "Pool"),
        ("import torch\ntorch.multiprocessing.spawn(f)", PROCESSES, "torch.multiprocessing.spawn"),
        ("from concurrent import futures\nfutures.ProcessPoolExecutor()", PROCESSES, "futures.ProcessPoolExecutor"),
        ("get_ipython().system('cp a b')", PROCESSES, "get_ipython().system"),
        ("x = 1\n!cp a b", PROCESSES, "!cp"),
        ("files = !ls runs", PROCESSES, "!ls"),
        ("%%bash\ncp a b", PROCESSES, "%bash"),
    ],
)
def test_what_reaches_out_is_found(text: str, kind: str, what: str) -> None:
    assert (kind, what) in [(one, call) for one, call, _ in found(text)]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nloader = torch.utils.data.DataLoader(rows, num_workers=4)",
        "import socket\nsocket.gethostname()",
        "import multiprocessing as mp\nmp.cpu_count(); mp.Queue(); mp.set_start_method('fork')",
        "import os\nos.makedirs('runs'); os.path.join('a', 'b')",
        "text = '''\n!cp a b\n'''",
        "subprocess = 1\nprint(subprocess)",
        "try:\n    pass\nexcept Exception:\n    requests = None",
        "%matplotlib inline\nx = 1",
        "def post(x):\n    return x\npost(1)",
    ],
)
def test_what_does_not_is_left_alone(text: str) -> None:
    assert found(text) == []


def test_names_of_earlier_cells_say_what_they_stand_for() -> None:
    assert found("sp.run(['true'])", sp=subprocess) == [(PROCESSES, "sp.run", 1)]
    assert found("run(['true'])", run=subprocess.run) == [(PROCESSES, "run", 1)]
    assert found("shell('true')", shell=os.system) == [(PROCESSES, "shell", 1)]
    assert found("\nPool(2)", Pool=multiprocessing.Pool) == [(PROCESSES, "Pool", 2)]

    class Session:
        def post(self) -> None: ...

    Session.__module__, Session.__qualname__ = "requests.sessions", "Session"
    assert found("session.post('http://x')", session=Session()) == [(NETWORK, "session.post", 1)]
    assert found("subprocess.run(1)", subprocess=SimpleNamespace(run=print)) == []


def test_each_call_is_named_once_with_its_first_line() -> None:
    text = "import requests\nfor x in rows:\n    requests.post(x)\nrequests.post(1)\nrequests.get(2)"
    assert found(text) == [(NETWORK, "requests.post", 3), (NETWORK, "requests.get", 5)]


def test_a_relative_import_is_not_the_library_of_that_name() -> None:
    assert found("from .requests import get\nget(1)") == [] != found("from requests import get\nget(1)")


def test_names_of_relative_and_star_imports() -> None:
    text = "from . import a\nfrom .b import c as d\nfrom ..b import e\nfrom q import *\nimport os.path"
    assert imported(ast.parse(text)) == {"a": ".a", "d": ".b.c", "e": "..b.e", "os": "os"}
