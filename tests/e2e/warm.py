"""A process that has imported what a run imports, and forks one ``axisrl`` command at a time.

Every command is a process of its own that can be killed; what it does not pay for again is the
seconds that importing torch takes. Where there are GPUs it pays: CUDA does not survive the fork of
a process in which a module has looked for a device. One JSON list a line in, one JSON value a line
out: ``["start", arguments, environment, output file]`` gives the id of the process, ``["poll",
id]`` its exit code, negative for a signal, or null while it runs. It computes nothing before it
forks, so no thread is lost.
"""

import importlib
import json
import os
import sys

_SLOW = (
    "reasoning_gym",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
    "axisrl.cli.run",
    "axisrl.ops.objective",
    "axisrl.runtime.driver",
    "axisrl_local.engine",
    "axisrl_local.trainer",
)


def start(arguments, environment, output):
    pid = os.fork()
    if pid:
        return pid
    os.environ.update(environment)
    sys.argv = ["axisrl", *arguments]
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from axisrl.cli.main import main

    sys.exit(main(arguments))


def poll(pid):
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def serve():
    for module in () if os.path.exists("/dev/nvidiactl") else _SLOW:
        importlib.import_module(module)
    verbs = {"start": start, "poll": poll}
    for line in sys.stdin:
        verb, *rest = json.loads(line)
        sys.stdout.write(json.dumps(verbs[verb](*rest)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
