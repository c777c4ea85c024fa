"""A process that is forked while a client exists ends by itself, whatever the client did at that moment."""

from __future__ import annotations

import os

import pytest
from support.attacks import attack
from support.bundles import small_bundle
from support.children import run_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SCRIPT = """
    import gc, os, signal, sys, threading, time, warnings
    import numpy as np
    from bcos_sdk import Client
    from bcos_sdk.errors import ClientClosedError

    warnings.simplefilter("ignore")  # newer Pythons warn of forks with threads
    path, device, how = sys.argv[1:]
    images = [np.full((32, 32, 3), grey, np.uint8) for grey in range(8)]
    client = Client(path, device=device, threads=2)
    stream = client.predict_stream(images * 10)
    next(stream)
    client.explain(images)
    ended = False

    def busy():
        while not ended:
            client.explain(images)
            list(client.predict_stream(images))

    threads = [threading.Thread(target=busy) for _ in range(2 * (how == "busy"))]
    for thread in threads:
        thread.start()
    for _ in range(8 if threads else 1):
        time.sleep(0.01)
        child = os.fork()
        if child == 0:
            signal.alarm(40)
            if how == "collected":
                del stream, client
                gc.collect()
            elif how == "closed":
                client.close()
            else:
                for call in (lambda: client.predict(images), lambda: next(stream)):
                    try:
                        call()
                    except ClientClosedError as error:
                        assert "another process" in str(error)
                    else:
                        os._exit(1)
            sys.exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    ended = True
    for thread in threads:
        thread.join()
    assert client.predict(images), "the parent goes on"
    client.close()
"""


@attack(
    "time",
    "a fork while a client exists",
    before="with OpenVINO the child hung at its exit and when the client was freed, and a stream hung in it",
)
@pytest.mark.parametrize("device", ["cpu", "openvino"])
@pytest.mark.parametrize("how", ["called", "collected", "closed", "busy"])
def test_a_forked_child_ends(device: str, how: str) -> None:
    if device == "openvino":
        pytest.importorskip("openvino")
    run_child(SCRIPT, str(small_bundle().path), device, how)
