# Sourced by the checks in the guest: reports their verdicts to the host.

# Runs a function and sends its verdict to the host: one line on a separate port, to which the kernel does not
# write. Output goes through a pipe, since commands draw progress bars on a terminal, which the console is.
check() {
    echo "begin $1"
    if "$@" 2>&1 | cat; then verdict=pass; else verdict=fail; fi
    echo "end $1"
    echo "$verdict $1 $(cut -d ' ' -f 1 /proc/uptime)" > /dev/ttyS1
}

# Waits for a file for up to 20 s, since devices appear some time after the command that creates them.
await() {
    for _ in $(seq 200); do
        [ ! -e "$1" ] || return 0
        usleep 100000
    done
    echo "$1 did not appear"
    return 1
}

# fails_saying PATTERN COMMAND: runs a command that must end with an error, not with a crash, and must print a
# line that matches the pattern.
fails_saying() {
    pattern=$1
    shift
    output=$("$@" 2>&1)
    ended=$?
    echo "$output"
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] || { echo "ended with $ended"; return 1; }
    echo "$output" | grep -q -e "$pattern" || { echo "no line matches '$pattern'"; return 1; }
}
