# Sourced by host.sh: packs the guest's files into one archive that its kernel unpacks into memory.
#   guest_programs   programs of $work/system/usr for the guest, besides busybox

# Copies the libraries that the system's loader would load for a program.
add_libraries() {
    local root=$1 program=$2 library
    "$loader" --library-path "$libraries" --list "$program" \
        | sed -n 's/.* => \([^ ]*\) (0x.*/\1/p' \
        | while read -r library; do cp -Ln "$library" "$root/lib/"; done
}

# Copies a program of $work/system with its libraries.
add_program() {
    local root=$1 program=$work/system/usr/$2
    cp "$program" "$root/bin/"
    add_libraries "$root" "$program"
}

# Copies the modules and writes their dependencies. They are unpacked here, since the guest's CPU is emulated
# and slow.
add_modules() {
    local root=$1 version=$2 from=$work/system/usr/lib/modules/$2 to=$1/lib/modules/$2 module
    mkdir -p "$to"
    cp "$from"/modules.* "$to/"
    (cd "$from" && find kernel -name '*.ko.xz') | while read -r module; do
        mkdir -p "$to/$(dirname "$module")"
        "$busybox" xzcat "$from/$module" > "$to/${module%.xz}"
    done
    from_system sbin/depmod -b "$root" "$version"
}

# Writes $work/initramfs.gz: tools, modules, the binary, its indexes and the checks.
pack_initramfs() {
    local root=$work/root version program
    version=$(basename "$work"/system/usr/lib/modules/*)
    rm -rf "$root"
    mkdir -p "$root"/{bin,lib,lib64,proc,sys,dev,etc,run,data}
    ln -s . "$root/usr"
    cp "$busybox" "$root/bin/"
    cp -L "$loader" "$root/lib64/ld-linux-x86-64.so.2"
    for program in "${guest_programs[@]}"; do add_program "$root" "$program"; done
    add_modules "$root" "$version"
    cp "$binary" "$root/bin/bathyal"
    cp -r "$work/data/." "$root/data/"
    cp "$here/guest_checks.sh" "$root/data/checks.sh"
    cp "$guest/verdicts.sh" "$root/data/verdicts.sh"
    cp "$guest/init.sh" "$root/init"
    add_own "$root"
    chmod 755 "$root/init"
    chmod -R a+rX "$root"
    (cd "$root" && find . | "$busybox" cpio -o -H newc -R 0:0 2> "$work/cpio.log") | gzip -1 > "$work/initramfs.gz"
}
