# Sourced by host.sh: puts QEMU, a kernel for the guest and further packages of the check into $work/system.
# Nothing is installed: apt works in its own folders, and packages are only unpacked.
#   guest_packages   Debian packages besides those of QEMU
#   guest_modules    files of the kernel's package to unpack, as patterns of tar

# QEMU 10 and Linux 6.12 are the oldest versions known to work. QEMU 7 has no volatile CXL memory.
release=trixie
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
packages=(qemu-system-x86 kmod busybox-static)

# Prints the Debian mirror of this machine's own package sources.
debian_mirror() {
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null \
        | grep -E '/debian/?$' | sort -u | head -n 1
}

# Makes later apt commands use folders below $work/apt and an empty list of installed packages.
private_apt() {
    local mirror=$1 apt=$work/apt
    mkdir -p "$apt"/state/lists/partial "$apt"/cache/archives/partial \
        "$apt"/etc/{preferences.d,apt.conf.d,sources.list.d}
    : > "$apt/status"
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$release" > "$apt/sources.list"
    cat > "$apt/apt.conf" <<CONF
Dir::State "$apt/state";
Dir::State::status "$apt/status";
Dir::Cache "$apt/cache";
Dir::Etc "$apt/etc";
Dir::Etc::SourceList "$apt/sources.list";
APT::Architecture "amd64";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "2";
CONF
    export APT_CONFIG=$apt/apt.conf
}

# Fetches the packages (about 150 MB) into $work/apt/cache/archives.
download() {
    local kernel
    apt-get update || return
    kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *//p' | head -n 1)
    [ -n "$kernel" ] || return
    apt-get install --yes --no-install-recommends --download-only "${packages[@]}" "${guest_packages[@]}" || return
    (cd "$work/apt/cache/archives" && apt-get download "$kernel")
}

# Unpacks the packages; of the kernel only the files that a guest without disks loads, since all take 600 MB.
unpack() {
    local into=$1 package
    for package in "$work"/apt/cache/archives/*.deb; do
        case $package in
            */linux-image-*)
                dpkg-deb --fsys-tarfile "$package" | tar -x -C "$into" --wildcards './boot/vmlinuz*' \
                    "${guest_modules[@]}" '*/kernel/lib/crc*' '*/kernel/crypto/crc32c*' '*/modules.builtin*' \
                    '*/modules.order' || return ;;
            *) dpkg-deb -x "$package" "$into" || return ;;
        esac
    done
}

# Prints the first error, which causes the others.
first_error() { grep -m 1 -E '^(E|W|dpkg-deb|tar): ' "$work/packages.log" || tail -n 1 "$work/packages.log"; }

# Prints a checksum of everything that determines $work/system.
recipe() { { cat "$guest/system.sh"; echo "${guest_packages[@]}" "${guest_modules[@]}"; } | cksum; }

# Makes $work/system, or skips the check with a reason.
prepare_system() {
    local mirror tool
    # It is made again after changes of this file or of the check's lists.
    [ "$(cat "$work/system/recipe" 2>/dev/null)" != "$(recipe)" ] || return 0
    [ "$(uname -m)" = x86_64 ] || skip "the guest's programs need x86_64, but this machine is $(uname -m)"
    for tool in apt-get dpkg-deb tar; do
        command -v "$tool" > /dev/null || skip "$tool is missing: QEMU and a kernel come from Debian packages"
    done
    [ -r "$keyring" ] || skip "$keyring is missing: install debian-archive-keyring, or set DEBIAN_KEYRING to its path"
    mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
    [ -n "$mirror" ] || skip "no Debian mirror among this machine's package sources: set DEBIAN_MIRROR"
    say "fetching QEMU and a kernel (Debian $release, 150 MB) into $work"
    private_apt "$mirror"
    download > "$work/packages.log" 2>&1 || skip "the packages could not be fetched: $(first_error)"
    rm -rf "$work/system.part" && mkdir "$work/system.part"
    unpack "$work/system.part" >> "$work/packages.log" 2>&1 \
        || skip "the packages could not be unpacked: $(first_error)"
    rm -rf "$work/system" "$work/apt"
    mv "$work/system.part" "$work/system"
    recipe > "$work/system/recipe"
}

# Runs a program of $work/system with the libraries of $work/system.
from_system() {
    local program=$1
    shift
    "$loader" --library-path "$libraries" --argv0 "$(basename "$program")" "$work/system/usr/$program" "$@"
}
