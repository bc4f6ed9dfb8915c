# Sourced by a check in the guest: how it tells the host what came of its parts.

# Runs a function and tells the host how it went: one line on a port of its own, where the kernel writes nothing.
# A pipe, because the console is a terminal, on which commands draw bars of progress.
check() {
    echo "begin $1"
    if "$@" 2>&1 | cat; then verdict=pass; else verdict=fail; fi
    echo "end $1"
    echo "$verdict $1 $(cut -d ' ' -f 1 /proc/uptime)" > /dev/ttyS1
}

# Polls for a file, since devices appear some time after the command that makes them; gives up after 20 s.
await() {
    for _ in $(seq 200); do
        [ ! -e "$1" ] || return 0
        usleep 100000
    done
    echo "$1 does not appear"
    return 1
}

# Runs a command that has to end with an error, not with a crash, and to say on one line what the pattern describes.
fails_saying() {
    pattern=$1
    shift
    said=$("$@" 2>&1)
    ended=$?
    echo "$said"
    [ "$ended" -gt 0 ] && [ "$ended" -lt 128 ] || { echo "ended with $ended"; return 1; }
    echo "$said" | grep -q -e "$pattern" || { echo "does not say '$pattern'"; return 1; }
}
