"""A job with an optimizer on its servers, whose processes keep what their sockets send.

``WATCH`` names a folder; each socket has a file there.
"""

import itertools
import os
import socket
import sys
import weakref
from pathlib import Path

FOLDER = Path(os.environ["WATCH"])
NUMBERS = itertools.count()
FILES = weakref.WeakKeyDictionary()


def note(sock, pieces, num_bytes):
    if sock not in FILES:
        FILES[sock] = FOLDER / f"{os.getpid()}-{next(NUMBERS)}"
    with FILES[sock].open("ab") as file:
        file.write(b"".join(bytes(piece) for piece in pieces)[:num_bytes])


class Send:
    def send(self, data, *more):
        num_bytes = socket.SocketType.send(self, data, *more)
        note(self, [data], num_bytes)
        return num_bytes

    def sendmsg(self, pieces, *more):
        pieces = list(pieces)
        num_bytes = socket.SocketType.sendmsg(self, pieces, *more)
        note(self, pieces, num_bytes)
        return num_bytes


socket.socket.send = Send.send
socket.socket.sendmsg = Send.sendmsg

import torch  # noqa: E402

import bireme  # noqa: E402

torch.set_num_threads(1)
store = bireme.kvstore.create("dist_sync")
parameters = [torch.nn.Parameter(torch.zeros(300_000)), torch.nn.Parameter(torch.zeros(3))]
store.set_optimizer(torch.optim.SGD(parameters, lr=0.5, momentum=0.5))
store.init(["a", "b"], [parameter.detach() for parameter in parameters])
for _ in range(3):
    store.push(["a", "b"], [torch.ones(300_000), torch.ones(3)])
    store.pull(["a", "b"])
store.save_optimizer_states(str(FOLDER / f"states-{store.rank}"))
store.barrier()
value = store.pull("b")[0].item()
sys.stdout.write(f"value {value}\n")
store.close()
