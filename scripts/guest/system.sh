# Sourced by host.sh: a QEMU, a kernel for the guest and what else the check names, below $work/system.
# Nothing is installed: apt works in folders of its own, and its packages are only unpacked.
#   guest_packages   Debian packages besides QEMU's
#   guest_modules    what of the kernel's package is unpacked, as patterns of tar

# QEMU 10 and Linux 6.12, the oldest that were seen to work. QEMU 7 has no CXL memory that is volatile.
release=trixie
keyring=${DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}
packages=(qemu-system-x86 kmod busybox-static)

# The Debian mirror that this machine takes its own packages from.
debian_mirror() {
    apt-get indextargets --format '$(SITE)' 'Created-By: Packages' 2>/dev/null \
        | grep -E '/debian/?$' | sort -u | head -n 1
}

# Points every apt command that follows at folders below $work/apt and at an empty list of installed packages.
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

# Fetches the packages, some 150 MB, into $work/apt/cache/archives.
download() {
    local kernel
    apt-get update || return
    kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *//p' | head -n 1)
    [ -n "$kernel" ] || return
    apt-get install --yes --no-install-recommends --download-only "${packages[@]}" "${guest_packages[@]}" || return
    (cd "$work/apt/cache/archives" && apt-get download "$kernel")
}

# Of the kernel only what a guest without disks loads: whole, it takes 600 MB.
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

# The first thing that went wrong, which is the cause of the others.
complaint() { grep -m 1 -E '^(E|W|dpkg-deb|tar): ' "$work/packages.log" || tail -n 1 "$work/packages.log"; }

# What $work/system is made by.
recipe() { { cat "$guest/system.sh"; echo "${guest_packages[@]}" "${guest_modules[@]}"; } | cksum; }

# Makes $work/system, or skips the check with the reason.
prepare_system() {
    local mirror tool
    # Made anew when what is said here or by the check has changed.
    [ "$(cat "$work/system/recipe" 2>/dev/null)" != "$(recipe)" ] || return 0
    [ "$(uname -m)" = x86_64 ] || skip "the guest's programs are for x86_64, this machine is $(uname -m)"
    for tool in apt-get dpkg-deb tar; do
        command -v "$tool" > /dev/null || skip "$tool was not found: QEMU and a kernel are taken from Debian packages"
    done
    [ -r "$keyring" ] || skip "$keyring was not found: install debian-archive-keyring, or name it in DEBIAN_KEYRING"
    mirror=${DEBIAN_MIRROR:-$(debian_mirror)}
    [ -n "$mirror" ] || skip "no Debian mirror among this machine's package sources: name one in DEBIAN_MIRROR"
    say "fetching QEMU and a kernel (Debian $release, 150 MB) into $work"
    private_apt "$mirror"
    download > "$work/packages.log" 2>&1 || skip "packages cannot be had: $(complaint)"
    rm -rf "$work/system.part" && mkdir "$work/system.part"
    unpack "$work/system.part" >> "$work/packages.log" 2>&1 \
        || skip "packages cannot be unpacked: $(complaint)"
    rm -rf "$work/system" "$work/apt"
    mv "$work/system.part" "$work/system"
    recipe > "$work/system/recipe"
}

# Runs a program of $work/system with its libraries, and not with this machine's.
from_system() {
    local program=$1
    shift
    "$loader" --library-path "$libraries" --argv0 "$(basename "$program")" "$work/system/usr/$program" "$@"
}
