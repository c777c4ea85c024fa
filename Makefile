PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH ?= resnet50 densenet121 convnext_tiny vitc_s_patch1_14 vgg11_bnu cifar10_resnet18_w16
WORKERS ?= 2
PYTHONS ?= 3.10 3.11 3.12 3.13
TORCH ?= 2.6.0
LOWEST ?= 3.10
# What `make test-pythons` runs, and how many of these tests must pass, so that a run that skips too many tests fails.
WITHOUT_TORCH := tests/attacks tests/bundle tests/cli tests/client tests/images tests/pictures tests/registry tests/results \
	tests/serve tests/testing tests/tritonserver tests/web tests/test_builtin.py tests/test_errors.py tests/test_extras.py
WITHOUT_TORCH_PASSED := 1500
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist worksteal
TRITON := nvidia-pytriton==0.7.0 'tritonclient[grpc]==2.73.0'
BINDINGS := tensorrt-cu12-bindings tensorrt-cu13-bindings
# The extras and the tools of the tests without torch.
TEST_EXTRAS := cpu openvino pandas parquet remote serve sign
TEST_TOOLS := hypothesis matplotlib playwright pytest pytest-xdist
EXPORT_TOOLS := $(TEST_TOOLS) einops setuptools
LOCKED := --no-deps --require-hashes --requirement

.PHONY: demo browser test test-full test-pythons test-lowest test-lowest-client test-lowest-export test-torch test-gpu test-ray test-triton test-resolve soak soak-serve wheel lock bench growth bench-serve lint format clean

demo: $(READY)  ## export the built-in model and explain the sample photographs of cats and dogs
	$(BIN)/bcos-sdk export pets37_resnet18_w32 --force -o out/demo
	$(BIN)/bcos-sdk predict samples/cat-1.jpg samples/cat-2.jpg samples/dog.jpg --explain --report --model out/demo --out out/report --overwrite
	@echo && echo "Now open out/report/report.html in a browser."
	@echo "Or serve the model with a page of its own: $(BIN)/bcos-sdk serve out/demo --samples samples"
	@echo "Or write a site that runs it in the browser: $(BIN)/bcos-sdk web out/demo out/web --samples samples"

browser: $(READY)  ## fetch ONNX Runtime Web by npm: what `bcos-sdk web` and `export --web` need
	$(BIN)/python .ci/node_packages.py bcos_sdk/web/onnxruntime-web.json bcos_sdk/web/runtime

test: lint  ## lint and all tests except the full-size ones
	$(PYTEST)

test-full: lint  ## the same, every published model at full size, and a real Ray cluster with kills
	$(PYTEST) --full
	$(MAKE) test-ray

test-pythons: $(PYTHONS:%=test-python-%)  ## the tests that need no torch, with the wheel: make test-pythons PYTHONS="3.10 3.12"

test-python-%: wheel build/pythons/bundles
	rm -rf build/pythons/$*
	$$(.ci/python $*) -m venv build/pythons/$*
	build/pythons/$*/bin/python -m pip install --quiet $(LOCKED) requirements/without-torch.txt
	build/pythons/$*/bin/python -m pip install --quiet --no-deps dist/*.whl
	env -u PYTHONPATH BCOS_SDK_TEST_BUNDLES=$(CURDIR)/build/pythons/bundles build/pythons/$*/bin/pytest -n $(WORKERS) \
		--installed $(WITHOUT_TORCH_PASSED) $(WITHOUT_TORCH)

.PHONY: build/pythons/bundles
build/pythons/bundles: $(READY)
	rm -rf $@
	PYTHONPATH=.:tests $(BIN)/python -m support.bundles $@

# `click>=8.2` promises that click 8.2 works. `make test-torch` tests the lower bound of torch.
test-lowest: test-lowest-client test-lowest-export  ## with the oldest supported version of every package but torch

test-lowest-client: wheel build/pythons/bundles
	rm -rf build/lowest
	$$(.ci/python $(LOWEST)) -m venv build/lowest
	$(BIN)/python .ci/lowest.py $(TEST_EXTRAS) --tools $(TEST_TOOLS) > build/lowest/requirements.txt
	build/lowest/bin/python -m pip install --quiet --only-binary :all: --requirement build/lowest/requirements.txt
	build/lowest/bin/python -m pip install --quiet --no-deps dist/*.whl
	env -u PYTHONPATH BCOS_SDK_TEST_BUNDLES=$(CURDIR)/build/pythons/bundles build/lowest/bin/pytest -n $(WORKERS) \
		--installed $(WITHOUT_TORCH_PASSED) $(WITHOUT_TORCH)

test-lowest-export: $(READY)
	rm -rf build/lowest-export
	$(PYTHON) -m venv build/lowest-export
	$(BIN)/python .ci/lowest.py cpu export --tools $(EXPORT_TOOLS) | sed '/^torch==/d' > build/lowest-export/requirements.txt
	grep '^torch==' constraints.txt >> build/lowest-export/requirements.txt
	build/lowest-export/bin/python -m pip install --quiet --requirement build/lowest-export/requirements.txt
	build/lowest-export/bin/python -m pip install --quiet --constraint constraints.txt --no-deps bcos torchvision --editable .
	build/lowest-export/bin/pytest -n $(WORKERS) tests/exporters tests/models tests/weights

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

test-gpu: .venv-gpu/.ready  ## the tests that need an NVIDIA GPU, in an environment with CUDA and TensorRT
	.venv-gpu/bin/pytest -m gpu
	.venv-gpu/bin/bcos-sdk doctor --report build/gpu-report.json

.venv-gpu/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[gpu,export,trt,trt-rtx,dev]'
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --no-deps bcos torchvision
	@touch $@

test-ray: .venv-ray/.ready build/pythons/bundles  ## kills, S3 and throughput on a real Ray cluster of this machine; ten minutes
	BCOS_SDK_TEST_BUNDLES=$(CURDIR)/build/pythons/bundles .venv-ray/bin/python -m pytest -n 0 --full tests/cluster

# Ray needs another protobuf than the exporter may, so it has an environment of its own, without torch.
.venv-ray/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[cpu,openvino,pandas,ray]' \
		$(TEST_TOOLS) boto3 duckdb moto[server] psutil
	@touch $@

test-triton: $(READY) build/triton/.ready  ## a real tritonserver on repositories that bcos-sdk writes; needs Linux on x86-64
	$(BIN)/python -m pip install --quiet --constraint constraints.txt grpcio
	BCOS_SDK_TEST_TRITON=$(CURDIR)/build/triton $(BIN)/pytest -n 0 --full tests/tritonserver
	BCOS_SDK_TEST_TRITON=$(CURDIR)/build/triton $(BIN)/pytest -n 0 --full tests/client -k Triton

# The server has an environment of its own, because it needs numpy 1. Its ONNX Runtime is that of the tests: bits are compared.
build/triton/.ready: constraints.txt
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet $(TRITON) $$(sed -n 's/^\(onnxruntime==[^;]*\).*/\1/p' constraints.txt | head -1)
	@touch $@

test-resolve:  ## resolve every extra for every supported Python from constraints.txt, without installing anything
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --constraint constraints.txt uv
	PATH=$(CURDIR)/build/lock/bin:$$PATH $(PYTHON) .ci/resolve.py $(PYTHONS)

soak: $(READY)  ## 20,000 calls per runtime with good and hostile images, and 200 clients: memory must stay constant
	$(BIN)/pytest -n 0 --soak -m soak tests/attacks/test_soak.py

soak-serve: $(READY)  ## 20,000 requests to a server, one in twenty hostile: every answer is compared, memory must stay constant
	$(BIN)/pytest -n 0 --soak -m soak tests/serve/test_serve_soak.py

wheel: $(READY)  ## build dist/: the same commit gives the same bytes
	rm -rf dist build/lib build/bdist.*
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build --no-isolation . > /dev/null

lock: $(READY)  ## choose the versions and hashes of all packages of CI, and describe them in sbom.cdx.json
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --constraint constraints.txt uv
	PATH=$(CURDIR)/build/lock/bin:$$PATH $(BIN)/python .ci/make_lock.py $(TEST_EXTRAS) --tools $(TEST_TOOLS)
	$(BIN)/python .ci/make_sbom.py

bench: $(READY)  ## measure the figures of docs/benchmarks.md; takes long and needs an idle machine
	$(BIN)/bcos-sdk benchmark $(BENCH) --batch 1,8 --against reference,conventional --threads 2 --rounds 7 --json docs/benchmarks.json
	$(BIN)/python docs/make_benchmarks.py

growth: $(READY)  ## measure the figures of docs/growth.md: time and memory against images, targets, pixels, threads
	$(BIN)/python docs/measure_growth.py
	$(BIN)/python docs/make_growth.py

bench-serve: $(READY) build/bench-serve/resnet50/manifest.json  ## compare a server on loopback with the bare engine; ten minutes
	$(BIN)/python .ci/bench_serve.py cifar10_resnet18_w16 build/bench-serve/resnet50

build/bench-serve/resnet50/manifest.json: $(READY)
	$(BIN)/bcos-sdk export resnet50 --random-weights --force -o $(@D)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=tests $(BIN)/lint-imports --no-logo --no-cache
	@if command -v node > /dev/null && test -d $(VENV)/typescript; then echo tsc; node $(VENV)/typescript/bin/tsc --project .; \
	else echo "No Node or no TypeScript: the types of the browser's modules are not checked."; fi

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# pip compares every package with its hash, except torch and what the CUDA build of torch needs: whether an index has the CPU
# build of torch, with another hash, differs between machines. setuptools is first, because it builds other packages.
# Tests and `make bench` compare with `bcos` and `torchvision`. They are installed without their dependencies, because
# torchvision would otherwise replace torch.
# The page in the browser needs files of an npm package, and its types are checked with TypeScript. Both are compared with
# recorded hashes. Nothing in them is run at set-up.
# Tests check calls of classic TensorRT against the Python bindings of two versions. Both packages are called
# tensorrt_bindings, and neither can be imported without TensorRT's libraries, so each has its own folder.
$(READY): pyproject.toml constraints.txt $(wildcard requirements/*.txt) Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "bcos-sdk needs Python 3.10 or newer: make PYTHON=python3.11 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(LOCKED) requirements/setuptools.txt
	$(BIN)/python -m pip install --quiet --no-build-isolation $(LOCKED) requirements/set-up.txt
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@for bindings in $(BINDINGS); do \
		$(BIN)/python -m pip install --quiet $(LOCKED) requirements/$$bindings.txt --upgrade --target $(VENV)/$$bindings \
		|| echo "No $$bindings for this platform: the tests of classic TensorRT's API will be skipped."; \
	done
	@$(BIN)/python .ci/node_packages.py bcos_sdk/web/onnxruntime-web.json bcos_sdk/web/runtime \
		|| echo "No ONNX Runtime Web: \`bcos-sdk web\` needs it. Try again with \`make browser\`."
	@$(BIN)/python .ci/node_packages.py .ci/typescript.json $(VENV)/typescript || true
	@touch $@

clean:
	rm -rf $(VENV) .venv-gpu .venv-ray build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
