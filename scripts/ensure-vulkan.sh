#!/usr/bin/env bash
# Makes sure that native WebGPU has something to run on: a Vulkan loader and a driver. Says nothing when both are there.
# Without a driver it installs Mesa's software one (llvmpipe), as root on Debian and Ubuntu; elsewhere it says what to do.
set -eu

[ "$(uname -s)" = Linux ] || exit 0 # macOS has Metal, Windows has Direct3D

have_loader() {
	local dir
	for dir in /usr/lib/*-linux-gnu /usr/lib64 /usr/lib /lib/*-linux-gnu /lib64 /usr/local/lib /opt/lib; do
		[ -e "$dir/libvulkan.so.1" ] && return 0
	done
	return 1
}

# A driver is a manifest that names a library. Any will do: a real GPU is better than llvmpipe.
have_driver() {
	local file
	[ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] && return 0
	for file in /usr/share/vulkan/icd.d/*.json /etc/vulkan/icd.d/*.json /usr/local/share/vulkan/icd.d/*.json \
		"${XDG_DATA_HOME:-${HOME:-/root}/.local/share}"/vulkan/icd.d/*.json; do
		[ -e "$file" ] && return 0
	done
	return 1
}

if have_loader && have_driver; then
	exit 0
fi

packages="libvulkan1 mesa-vulkan-drivers"
command="apt-get update && apt-get install -y --no-install-recommends $packages"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	echo "installing $packages" >&2
	log=$(mktemp)
	trap 'rm -f "$log"' EXIT
	export DEBIAN_FRONTEND=noninteractive
	# shellcheck disable=SC2086 # a list of packages
	if { apt-get update && apt-get install -y --no-install-recommends $packages; } >"$log" 2>&1 && have_loader && have_driver; then
		exit 0
	fi
	tail -n 20 "$log" >&2
	echo "installing $packages failed; the lines above say why" >&2
	exit 1
fi

echo "No Vulkan driver was found, so native WebGPU has nothing to run on. A software driver will do:" >&2
if command -v apt-get >/dev/null; then
	echo "    sudo sh -c '$command'" >&2
elif command -v dnf >/dev/null; then
	echo "    sudo dnf install vulkan-loader mesa-vulkan-drivers" >&2
elif command -v pacman >/dev/null; then
	echo "    sudo pacman -S vulkan-icd-loader vulkan-swrast" >&2
elif command -v apk >/dev/null; then
	echo "    sudo apk add vulkan-loader mesa-vulkan-swrast" >&2
else
	echo "    install a Vulkan loader and Mesa's Vulkan drivers with your system's package manager" >&2
fi
exit 1
