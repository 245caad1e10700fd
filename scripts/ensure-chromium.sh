#!/usr/bin/env bash
# Prints the path of a Chromium for the browser tests. $CHROME wins. Where there is none it is installed, with fonts for
# Chinese, as root on Debian; elsewhere the script says what to do.
set -eu

# Ubuntu's package is a script that asks for a snap, which containers cannot run.
is_stub() {
	local target
	target=$(readlink -f "$1")
	case $target in
	/usr/bin/snap | /snap/*) return 0 ;;
	esac
	[ "$(head -c 2 "$target" 2>/dev/null | tr -d '\0')" = '#!' ] && grep -q 'snap install\|/snap/bin' "$target"
}

find_chromium() {
	local name path
	stub=
	for name in chromium chromium-browser google-chrome google-chrome-stable chrome chromium-headless-shell headless_shell; do
		path=$(command -v "$name") || continue
		if is_stub "$path"; then
			stub=$path
			continue
		fi
		echo "$path"
		return 0
	done
	if [ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]; then
		echo "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
		return 0
	fi
	return 1
}

# How to get one where the package manager has none, or only Ubuntu's stub.
advise() {
	{
		if [ -n "$1" ]; then
			echo "$1 only starts a snap, which does not work in containers or for these tests."
		else
			echo "No Chromium was found."
		fi
		echo "Install Google Chrome:"
		echo "    curl -fsSLo /tmp/chrome.deb https://dl.google.com/linux/direct/google-chrome-stable_current_amd64.deb"
		echo "    sudo apt-get install -y /tmp/chrome.deb fonts-noto-cjk"
		echo "or set CHROME to the path of a Chromium or Chrome that you have:"
		echo "    export CHROME=/path/to/chrome"
	} >&2
	exit 1
}

if [ -n "${CHROME:-}" ]; then
	if path=$(command -v "$CHROME"); then
		echo "$path"
		exit 0
	fi
	echo "CHROME is set to $CHROME, which is not a program" >&2
	exit 1
fi

stub=
if path=$(find_chromium); then
	echo "$path"
	exit 0
fi
find_chromium >/dev/null || true # once more outside the subshell, for $stub

# The stub's package is called the same as Debian's real one, so only the system's name tells them apart.
# shellcheck disable=SC1091 # a file of the system
system=$(. /etc/os-release 2>/dev/null && echo "${ID:-}" || true)
if [ -n "$stub" ] || [ "$system" = ubuntu ]; then
	advise "$stub"
fi
packages="chromium fonts-noto-cjk"
if ! command -v apt-get >/dev/null; then
	advise ""
fi
if [ "$(id -u)" != 0 ]; then
	echo "No Chromium was found. Install it, with fonts for Chinese:" >&2
	echo "    sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends $packages'" >&2
	echo "or set CHROME to the path of one." >&2
	exit 1
fi
echo "installing $packages" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of packages
if { apt-get update && apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1 && find_chromium; then
	exit 0
fi
tail -n 20 "$log" >&2
advise ""
