# The keeper: holds a rig's namespaces while its owner lives, and removes every trace when the owner is gone.
# Arguments: the rig's directory, the name of its cgroup. Standard input: held open by the owner.
# Says one line: "busy", or the process id of the rig's first process.
trap '' INT TERM HUP
directory=$1 cgroup=$2

sweep() {
    rm -rf --one-file-system "$directory"/* || true
    tries=0
    while [ $tries -lt 50 ]; do
        left=$(find /sys/fs/cgroup -maxdepth 2 -type d \( -name "$cgroup" -o -name "$cgroup.daemons" \) 2>/dev/null)
        [ -z "$left" ] && break
        find $left -depth -type d -exec rmdir {} + 2>/dev/null
        tries=$((tries + 1))
        [ -d "${left%%
*}" ] && sleep 0.1
    done
}

mkdir -p "$directory" && exec 9<"$directory" || exit 1
flock --nonblock 9 || { echo busy; exit 0; }
# Keys of administrators are in it.
chmod 700 "$directory"
# Whoever held the lock before may have removed the directory meanwhile.
[ "$directory" -ef /proc/self/fd/9 ] || { echo busy; exit 0; }
sweep

# A process namespace of its own: when its first process dies, the kernel ends all others, and with them go their
# mounts, network namespaces and links. Nothing depends on anybody's tidiness.
setpriv --pdeathsig KILL unshare --pid --mount --net --fork --kill-child --mount-proc \
    sh -c 'sleep infinity & wait' 9<&- <&- >&- &
outer=$!
while kill -0 $outer 2>/dev/null; do
    read -r first </proc/$outer/task/$outer/children
    [ -n "$first" ] && break
    sleep 0.01
done
echo $first
exec >&-

# Until the owner closes its end: by asking, by exiting, or by dying.
while read -r _; do :; done
kill -KILL $first
wait $outer
sweep
rmdir "$directory"
# The directory of all rigs, if this was the last.
rmdir "${directory%/*}" 2>/dev/null
exit 0
