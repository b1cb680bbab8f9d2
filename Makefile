# A few targets in front of CMake and Ninja. `make demo` and `make check` need nothing but make on a Debian or Ubuntu.

PREFIX  ?= /usr/local
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
RELEASE := build/release

# of the campaign; PLANS: of a problem at most, 0: all
SEED    ?= 1
PROBLEMS ?= 2000
MINUTES ?= 30
PLANS   ?= 0
COUNT   ?= 100

# of the wheel: AUTO (where nvcc is found), ON or OFF
CUDA    ?= AUTO
SAMPLE  ?= 0

.PHONY: build help demo check check-cuda check-thread campaign campaign-cuda faults kills lint format install uninstall bench fuzz wheel docs clean

build: deps-build
	@cmake -G Ninja -S . -B $(RELEASE) -DCMAKE_BUILD_TYPE=Release -DRCV_TESTS=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX) >build/configure.log \
	    || { cat build/configure.log; exit 1; }
	@cmake --build $(RELEASE) -j $(JOBS)

help:
	@echo "make build       the library and the tool, in $(RELEASE) (the default)"
	@echo "make demo        train a small language model for a minute and see it write"
	@echo "make check       every test without optional dependencies, and with all of them under the sanitizers (long sweeps in part); clang"
	@echo "make check-cuda  the tests that need a GPU, and some of them under compute-sanitizer"
	@echo "make campaign    random problems by every plan against naive: SEED=1 PROBLEMS=2000 MINUTES=30 PLANS=0 JOBS=2"
	@echo "make campaign-cuda  the same on a GPU"
	@echo "make check-thread  the tests with threads and ranks under the thread sanitizer"
	@echo "make faults      fail every call that can fail in every verb, one at a time; SAMPLE=N: so many of them"
	@echo "make kills       kill a training run at COUNT of its writes and compare what goes on (now $(COUNT))"
	@echo "make lint        formatting, cppcheck, clang-tidy"
	@echo "make format      format every C file"
	@echo "make bench       run the benchmarks"
	@echo "make fuzz        mutate every format that is read, under the sanitizers (RUNS=100000 MINUTES= SEED=1 ONLY=\"cell log\")"
	@echo "make install     install under PREFIX (now $(PREFIX)), below DESTDIR if set"
	@echo "make uninstall   remove what make install wrote, under the same PREFIX and DESTDIR"
	@echo "make wheel       the Python package as a wheel, in build/wheel (CUDA=OFF: without CUDA)"
	@echo "make docs        a site of the pages that can be searched, in build/site (by mkdocs)"
	@echo "make clean       remove build/"

demo: build
	@bash scripts/demo.sh $(RELEASE)

check: deps-check
	@bash scripts/check.sh $(JOBS)

check-cuda: deps-check
	@bash scripts/check-cuda.sh $(JOBS)

campaign: deps-check
	@bash scripts/campaign.sh cpu --seed $(SEED) --problems $(PROBLEMS) --minutes $(MINUTES) --plans $(PLANS) --jobs $(JOBS)

campaign-cuda: deps-check
	@bash scripts/campaign.sh cuda --seed $(SEED) --problems $(PROBLEMS) --minutes $(MINUTES) --plans $(PLANS) --jobs $(JOBS)

check-thread: deps-check
	@bash scripts/check-thread.sh $(JOBS)

faults: deps-check
	@bash scripts/faults.sh $(JOBS) faults.py --sample $(SAMPLE)

kills: deps-check
	@bash scripts/faults.sh $(JOBS) kills.py --count $(COUNT)

lint: deps-lint
	@bash scripts/lint.sh $(JOBS)

format: deps-lint
	@bash scripts/lint.sh --format

install: build
	@cmake --install $(RELEASE) --prefix $(PREFIX)
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig 2>/dev/null || true

uninstall:
	@DESTDIR="$(DESTDIR)" bash scripts/uninstall.sh "$(PREFIX)"
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig 2>/dev/null || true

bench: build
	@cmake --build $(RELEASE) -j $(JOBS) --target bench

fuzz: deps-check
	@RUNS="$(RUNS)" MINUTES="$(MINUTES)" SEED="$(SEED)" ONLY="$(ONLY)" bash scripts/fuzz.sh $(JOBS)

wheel: deps-build
	@bash scripts/wheel.sh $(CUDA) $(JOBS)

docs:
	@python3 scripts/site.py

clean:
	@rm -rf build

# Looks before it asks: nothing is installed, and no root is needed, where everything is there already.
.PHONY: deps-build deps-check deps-lint
deps-build deps-check deps-lint: deps-%:
	@mkdir -p build
	@bash scripts/install-deps.sh $*
