#!/bin/sh
# Refreshes static/vendor from the npm packages pinned below: one ES module and its licence each.
# Needs npm, openssl and tar; the page itself needs no build step. To change a version, change its line here: the hash is
# dist.integrity of `npm view NAME@VERSION`. A package whose bytes do not match its hash is refused.
set -eu

cd "$(dirname "$0")/.."
out=static/vendor
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# vendor NAME VERSION SHA512 MODULE LICENCE LICENCE_NAME
vendor() {
	tarball=$tmp/$(cd "$tmp" && npm pack --silent "$1@$2" | tail -n 1)
	got=$(openssl dgst -sha512 -binary "$tarball" | openssl base64 -A)
	if [ "$got" != "$3" ]; then
		echo "vendor-js: $1@$2 has sha512-$got, not sha512-$3" >&2
		exit 1
	fi
	tar -xzf "$tarball" -C "$tmp"
	# The source map is not vendored, so its address would be a broken one.
	sed '/^\/\/# sourceMappingURL=/d' "$tmp/package/$4" >"$tmp/$1.js"
	mv "$tmp/$1.js" "$out/$1.js"
	cp "$tmp/package/$5" "$out/$1.LICENSE"
	rm -rf "$tmp/package"
	printf '%s %s\n  file     %s.js, the package'\''s %s without its sourceMappingURL line\n  licence  %s (%s.LICENSE)\n  package  sha512-%s\n' \
		"$1" "$2" "$1" "$4" "$6" "$1" "$3" >>"$tmp/VERSIONS"
}

mkdir -p "$out"
vendor marked 18.2.1 ii4bxCTCqqwpT86XZWgJNs+ZnAIZksmLGYMViWA7PDIXYIeNo1x6cDdX3JOip9NM/cI6p8z57FxliACboTruMA== \
	lib/marked.esm.js LICENSE MIT
vendor dompurify 3.5.0 LYC0ZkE8P1V42JsRYTwMdme/2ET8SpOc5AA2eOFjP/IadvRd2fwiT4TVz5vkfy0XUx12aS2UaRkTnfVPNOv9vw== \
	dist/purify.es.mjs LICENSE "MPL-2.0 or Apache-2.0"
mv "$tmp/VERSIONS" "$out/VERSIONS"
