PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS ?= cpu,openvino,export,trt-rtx,dev
BENCH ?= resnet50 densenet121 convnext_tiny vitc_s_patch1_14 vgg11_bnu
WORKERS ?= 2
PYTHONS ?= 3.10 3.11 3.12 3.13
TORCH ?= 2.6.0
# What `make test-pythons` runs, and how many of these tests must pass, so that a run that skips too many tests fails.
WITHOUT_TORCH := tests/bundle tests/cli tests/client tests/images tests/pictures tests/registry tests/results \
	tests/testing tests/test_builtin.py tests/test_errors.py tests/test_extras.py
WITHOUT_TORCH_PASSED := 560
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal
BINDINGS := tensorrt-cu12-bindings tensorrt-cu13-bindings

.PHONY: demo test test-full test-pythons test-torch test-gpu bench lint format clean

demo: $(READY)  ## export the built-in model and explain the sample photographs
	$(BIN)/bcos-sdk export cifar10_resnet18_w16 --force -o out/demo
	$(BIN)/bcos-sdk predict samples --explain --report --model out/demo --out out/report --overwrite
	@echo && echo "Now open out/report/report.html in a browser."

test: lint  ## lint and all tests except the full-size ones
	$(PYTEST)

test-full: lint  ## the same, and every published model at full size
	$(PYTEST) --full

test-pythons: $(PYTHONS:%=test-python-%)  ## the tests that need no torch, with the wheel: make test-pythons PYTHONS="3.10 3.12"

test-python-%: build/pythons/wheel build/pythons/bundles
	rm -rf build/pythons/$*
	$$(.ci/python $*) -m venv build/pythons/$*
	build/pythons/$*/bin/python -m pip install --quiet --constraint constraints.txt \
		"$$(echo build/pythons/wheel/*.whl)[cpu,openvino,pandas,parquet,sign]" hypothesis matplotlib playwright pytest pytest-xdist
	env -u PYTHONPATH BCOS_SDK_TEST_BUNDLES=$(CURDIR)/build/pythons/bundles build/pythons/$*/bin/pytest -n $(WORKERS) \
		--installed $(WITHOUT_TORCH_PASSED) $(WITHOUT_TORCH)

.PHONY: build/pythons/wheel build/pythons/bundles
build/pythons/wheel: $(READY)
	rm -rf $@
	$(BIN)/python -m build --no-isolation --outdir $@ . > /dev/null

build/pythons/bundles: $(READY)
	rm -rf $@
	PYTHONPATH=.:tests $(BIN)/python -m support.bundles $@

# Each version of torchvision works with one version of torch: 0.21 with 2.6, 0.22 with 2.7, and so on.
test-torch: build/torch-$(TORCH)/.ready  ## the exporter's tests with another torch: make test-torch TORCH=2.8.0
	build/torch-$(TORCH)/bin/pytest -n $(WORKERS) tests/exporters tests/models tests/weights

build/torch-$(TORCH)/.ready: pyproject.toml constraints.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	grep --invert-match "torch\|setuptools" constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/python -m pip install --quiet --constraint $(@D)/constraints.txt torch==$(TORCH) --editable '.[cpu,export,dev]'
	$(@D)/bin/python -m pip install --quiet --constraint $(@D)/constraints.txt --no-deps \
		bcos "torchvision==0.$$(($(word 2,$(subst ., ,$(TORCH))) + 15)).*"
	@touch $@

test-gpu:  ## the tests that need an NVIDIA GPU, in an environment with CUDA and TensorRT
	$(MAKE) VENV=.venv-gpu EXTRAS=gpu,export,trt,trt-rtx,dev .venv-gpu/.ready
	.venv-gpu/bin/pytest -m gpu

bench: $(READY)  ## measure the figures of docs/benchmarks.md; takes long and needs an idle machine
	$(BIN)/bcos-sdk benchmark $(BENCH) --batch 1,8 --against reference,conventional --threads 2 --rounds 7 --json docs/benchmarks.json
	$(BIN)/python docs/make_benchmarks.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=tests $(BIN)/lint-imports --no-logo --no-cache

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Tests and `make bench` compare with `bcos` and `torchvision`. They are installed without their dependencies, because
# torchvision would otherwise replace torch.
# Tests check calls of classic TensorRT against the Python bindings of two versions. Both packages are called
# tensorrt_bindings, and neither can be imported without TensorRT's libraries, so each has its own folder.
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
