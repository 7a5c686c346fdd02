"""What the key `e` of the log screen stops at: lines as programs print them, and lines that only look like that."""

from __future__ import annotations

import time

import pytest

from rgt_tui.ui.line_finder import ERROR

ERRORS = {
    "python": """
Traceback (most recent call last):
ZeroDivisionError: division by zero
KeyError: 3
AssertionError
KeyboardInterrupt
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB
OSError: [Errno 28] No space left on device: '/workspace/run/checkpoints/.tmp-812-1'
ModuleNotFoundError: No module named 'flash_attn'
urllib3.exceptions.HTTPError: 503 Server Error
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.
Exception in thread Thread-4 (_pin_memory_loop):
2026-03-01 10:00:00,123 - trainer - ERROR - could not save
2026-03-01 10:00:00 | CRITICAL | the loss has diverged
ERROR:root:boom
CRITICAL:trainer:giving up
[ERROR] 3 workers died
[2026-03-01 10:00:00,000][__main__][ERROR] - boom
wandb: ERROR Error while calling W&B API: project not found
FATAL: cannot open the data set
{"time": "2026-03-01", "level": "error", "message": "no batch"}
ts=2026-03-01T10:00:00Z level=fatal msg="lost the store"
""",
    "numbers": """
loss is inf
step 812: loss is nan, stopping
train loss: inf
step 40 | loss=inf | lr=1e-4
{'loss': inf, 'grad_norm': nan, 'learning_rate': 0.0001, 'epoch': 0.4}
{"loss": Infinity, "step": 812}
iter 300: loss nan, time 80.00ms, mfu 12.00%
grad_norm: -inf
loss tensor(inf, device='cuda:0')
NaN or Inf found in input tensor.
""",
    "torchrun": """
E0301 10:00:00.000000 140 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0
[E ProcessGroupNCCL.cpp:607] [Rank 0] Some operations may be incomplete
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
train.py FAILED
  exitcode  : -9 (pid: 1234)
  traceback : Signal 9 (SIGKILL) received by PID 1234
W0301 10:00:00 api.py:897] Sending process 1234 closing signal SIGTERM
""",
    "nccl": """
[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=62, OpType=ALLREDUCE, NumelIn=1)
node1:71:90 [0] NCCL WARN Cuda failure 'out of memory'
node1:71:90 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<4571> failed : Connection refused
torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled cuda error
ncclInternalError: Internal check failed.
NCCL communicator was aborted on rank 3.
""",
    "slurm": """
srun: error: node01: task 3: Killed
srun: error: Unable to allocate resources: Invalid partition name specified
srun: Job step aborted: Waiting up to 32 seconds for job step to finish.
slurmstepd: error: *** JOB 812 ON node01 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***
slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.
sbatch: error: Batch job submission failed: Requested node configuration is not available
""",
    "deepspeed": """
[2026-03-01 10:00:00,000] [ERROR] [launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -9
['python', 'train.py'] exits with return code = 1
[2026-03-01 10:00:00,000] [INFO] [launch.py:316:sigkill_handler] exits with return code = -6
""",
    "shells": """
bash: line 3:  1234 Killed                  python train.py
train.sh: line 3: pyhton: command not found
/bin/sh: 1: nvcc: not found
cat: cfg.yaml: No such file or directory
-bash: ./train.sh: Permission denied
Segmentation fault (core dumped)
Aborted (core dumped)
Terminated
exit code 137
Exit code: 1 is what exit code 1 means
the job exited with code 137
exited with status 2
process exited with 1
exit status 255
exit=137
make: *** [Makefile:12: train] Error 1
fatal: not a git repository (or any of the parent directories): .git
tee: run.log: write error: No space left on device
error: externally-managed-environment
thread 'main' panicked at src/main.rs:4:5:
a.c:3:10: fatal error: cuda.h: No such file or directory
State: Terminated  Reason: OOMKilled  Exit Code: 137
""",
    "cuda": """
CUDA error: an illegal memory access was encountered
RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`
cuDNN: CUDNN_STATUS_EXECUTION_FAILED
NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.
../aten/src/ATen/native/cuda/Loss.cu:250: block: [0,0,0], thread: [3,0,0] Assertion `t >= 0` failed.
terminate called after throwing an instance of 'c10::Error'
""",
}
NONE = {
    "measures": """
MeanAbsoluteError: 0.12
MeanSquaredError=3.2e-4, lr=1e-4
val_MeanAbsoluteError: 0.12 - loss: 0.3
{'MeanAbsolutePercentageError': 12, 'loss': 0.4}
Epoch 3/10 - mean_absolute_error: 0.0312 - val_loss: 0.41
ReconstructionError 0.02
SmoothedError: 0.12
epoch 3 error: 0.12
Error: 0.0312
train error: .031 test error: 0.044
WordErrorRate: 0.041
top1_error=23.4 error_rate=0.05
ERROR: 0.12
errors: 0, warnings: 3
FAILED: 0 PASSED: 812
0 errors, no exceptions
error: None
""",
    "settings": """
log_level=ERROR
Setting the log level ERROR for transformers
TORCH_NCCL_ASYNC_ERROR_HANDLING=1
node1:71:90 [0] NCCL INFO NCCL_TIMEOUT set by environment to 1800.
node1:71:90 [0] NCCL INFO Error handling is asynchronous
NCCL timeout: 1800 s
init_process_group(backend='nccl', timeout=1800)
patience: inf, clip=inf
detect_nan: False, nan_policy=omit
raise_error=True on-error=resume
OOM_RETRIES=3
""",
    "words": """
Epoch 2: val_loss improved from inf to 0.31, saving model to best.keras
inference took 3.2 s; infinite loader, infimum
loss information: see below
nanoGPT, nan-safe softmax, banana
Loading BAAI/Infinity-Instruct
saving to runs/nan/1
nan: 0, inf: 0
INFO terminology loaded
2026-03-01 10:00:00 INFO all is well
E2E benchmark 10:00
""",
    "ends": """
exit code 0
the job exited with code 0
exits with return code = 0
exit status: 0
exit=0
returned status code 200
early exit layer 3, exit threshold 0.5
step 137: loss 2.31
""",
}


def lines(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(kind, line) for kind, text in table.items() for line in text.strip("\n").split("\n")]


@pytest.mark.parametrize(("kind", "line"), lines(ERRORS))
def test_an_error_is_stopped_at(kind: str, line: str) -> None:
    assert ERROR.search(line), f"{kind}: {line}"


@pytest.mark.parametrize(("kind", "line"), lines(NONE))
def test_what_is_none_is_passed_by(kind: str, line: str) -> None:
    found = ERROR.search(line)
    assert found is None, f"{kind}: {found.group()!r} in {line}"


@pytest.mark.parametrize(
    "text", ["a", "NCCL ", "loss ", "Error", "error:", "Mean", "*** [", "sh: 1: ", "exit ", " "]
)
def test_an_absurd_line_takes_no_time(text: str) -> None:
    """A line has up to 20,000 characters, and two thousand of them are kept."""
    line = text * (20_000 // len(text)) + "\x00"
    began = time.process_time()
    for _ in range(5):
        ERROR.search(line)
    assert time.process_time() - began < 2.0
