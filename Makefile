PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS ?= cpu,openvino,export,trt-rtx,dev
BENCH ?= resnet50 densenet121 convnext_tiny vitc_s_patch1_14 vgg11_bnu
BINDINGS := tensorrt-cu12-bindings tensorrt-cu13-bindings

.PHONY: demo test test-full test-gpu bench lint format clean

demo: $(READY)  ## from nothing to explanations of photographs
	$(BIN)/bcos-sdk export cifar10_resnet18_w16 --force -o out/demo
	$(BIN)/bcos-sdk predict samples --explain --report --model out/demo --out out/report
	@echo && echo "Now open out/report/report.html in a browser."

test: lint  ## everything that CI checks
	$(BIN)/pytest

test-full: lint  ## the same, and every published model at full size
	$(BIN)/pytest --full

test-gpu:  ## what needs an NVIDIA GPU, in an environment with CUDA and TensorRT
	$(MAKE) VENV=.venv-gpu EXTRAS=gpu,export,trt,trt-rtx,dev .venv-gpu/.ready
	.venv-gpu/bin/pytest -m gpu

bench: $(READY)  ## the figures of docs/benchmarks.md; takes its time, and wants a machine that does nothing else
	$(BIN)/bcos-sdk benchmark $(BENCH) --batch 1,8 --against reference,conventional --threads 2 --rounds 7 --json docs/benchmarks.json
	$(BIN)/python docs/make_benchmarks.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# `bcos` and `torchvision` are the oracle of the tests, and what `make bench` compares with. They are installed without
# their dependencies because torchvision would otherwise ask for a torch of its own.
# The bindings of two TensorRTs are the oracle of what classic TensorRT's API has. Both are called
# tensorrt_bindings and neither works without TensorRT's libraries, so each has a folder that nothing else sees.
$(READY): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "bcos-sdk needs Python 3.10 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$(EXTRAS)]'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps bcos torchvision
	@for bindings in $(BINDINGS); do \
		$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps --upgrade \
			--target $(VENV)/$$bindings $$bindings \
		|| echo "No $$bindings for this platform: the tests of classic TensorRT's API will be skipped."; \
	done
	@touch $@

clean:
	rm -rf $(VENV) .venv-gpu build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
