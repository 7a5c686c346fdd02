# Read a box with nothing but a POSIX shell. One reading per line "t NUMBER" on standard input; lines "RGT KEY …" out.
# Unknown is "-". Nothing is written to the box. What others may have chosen (names, command lines) goes through
# printf: `echo` of some shells makes a new line of \n.
export LC_ALL=C
r_guard=
timeout 5 true 2>/dev/null && r_guard='timeout 5'

r_first() {
    v=
    { read -r v x <"$1"; } 2>/dev/null
    [ -n "$v" ] || v=-
}

r_field() { # FILE NAME: the number behind a name
    w=-
    { while read -r k x z; do [ "$k" = "$2" ] && w=$x; done <"$1"; } 2>/dev/null
}

r_levels() { # MOUNT PATH: the directories from the own cgroup up to the mount
    p=$2
    while :; do
        [ -d "$1$p" ] && printf '%s\n' "$1$p"
        case $p in '' | /) break ;; esac
        p=${p%/*}
        [ -n "$p" ] || p=/
    done
}

r_memory=; r_cpu=; r_version=-; r_own=
{
    while IFS=: read -r n c p; do
        case ",$c," in
        *,memory,*) [ -d /sys/fs/cgroup/memory ] && r_version=1 && r_memory=$p ;;
        *,cpu,*) r_cpu=$p ;;
        ,,) r_own=$p ;;
        esac
    done </proc/self/cgroup
} 2>/dev/null
if [ "$r_version" = 1 ]; then
    r_names='memory.usage_in_bytes memory.limit_in_bytes memory.max_usage_in_bytes total_inactive_file memory.oom_control'
    r_levels=$(r_levels /sys/fs/cgroup/memory "$r_memory")
    r_cpus=$(r_levels /sys/fs/cgroup/cpu "$r_cpu")
elif [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    r_version=2
    r_names='memory.current memory.max memory.peak inactive_file memory.events'
    r_levels=$(r_levels /sys/fs/cgroup "$r_own")
    r_cpus=$r_levels
else
    r_names='- - - - -'; r_levels=; r_cpus=
fi

r_mount() { # PATH: file system type and rw or ro
    k=-; f=-
    { while read -r a b c o x; do [ "$b" = "$1" ] && k=$c && f=${o%%,*}; done </proc/mounts; } 2>/dev/null
}

r_disk() { # NUMBER PATH
    if [ ! -e "$2" ]; then
        echo "RGT de $1 there is no such directory"
        return
    fi
    d=$($r_guard df -Pk "$2" 2>/dev/null | tail -n 1)
    if [ -z "$d" ]; then
        echo "RGT de $1 the file system does not answer"
        return
    fi
    i=$($r_guard df -Pi "$2" 2>/dev/null | tail -n 1)
    r_mount "$2"
    printf '%s\n' "RGT db $1 $k $f $d"
    [ -z "$i" ] || printf '%s\n' "RGT di $1 $i"
}

r_host() {
    a=-; b=-; c=-; d=-
    {
        while read -r k x z; do
            case $k in
            MemTotal:) a=$x ;; MemAvailable:) b=$x ;; SwapTotal:) c=$x ;; SwapFree:) d=$x ;;
            esac
        done </proc/meminfo
    } 2>/dev/null
    echo "RGT h $a $b $c $d"
}

r_cgroup() {
    set -- $r_names
    printf '%s\n' "$r_levels" | while read -r l; do
        [ -r "$l/$1" ] || continue
        r_first "$l/$1"; used=$v
        r_first "$l/$2"; most=$v
        r_first "$l/$3"; peak=$v
        r_field "$l/memory.stat" "$4"; cache=$w
        r_field "$l/$5" oom_kill
        r_first "$l/memory.swap.current"; swap=$v
        r_first "$l/memory.swap.max"
        echo "RGT m $r_version $used $most $peak $cache $w $swap $v"
    done
}

r_processor() {
    r_first /proc/loadavg
    echo "RGT l $v"
    printf '%s\n' "$r_cpus" | while read -r l; do
        [ -n "$l" ] || continue
        if [ "$r_version" = 2 ]; then
            v=; x=
            { read -r v x <"$l/cpu.max"; } 2>/dev/null
            echo "RGT q ${v:--} ${x:--}"
        else
            r_first "$l/cpu.cfs_quota_us"; a=$v
            r_first "$l/cpu.cfs_period_us"
            echo "RGT q $a $v"
        fi
    done
    r_first /proc/uptime
    echo "RGT u $v"
}

r_gpus() {
    command -v nvidia-smi >/dev/null 2>&1 || return 0
    g=$($r_guard nvidia-smi --query-gpu="$r_columns" --format=csv,noheader,nounits 2>&1)
    s=$?
    printf '%s\n' "$g" | while IFS= read -r l; do
        if [ $s = 0 ]; then printf '%s\n' "RGT g $l"; else printf '%s\n' "RGT ge $l"; fi
    done
}

r_began=$(grep btime /proc/stat 2>/dev/null); r_began=${r_began#btime }
r_hz=$(getconf CLK_TCK 2>/dev/null || echo 100)
r_page=$(getconf PAGESIZE 2>/dev/null || echo 4096)
r_grep=grep # that of busybox knows no -a, and needs none
echo a | grep -a a >/dev/null 2>&1 && r_grep='grep -a'

r_process() { # PID COMMAND LINE
    s=
    { IFS= read -r s <"/proc/$1/stat"; } 2>/dev/null
    p=$1; c=$2
    set -- ${s##*) } # state, parent and so on, as of field 3 in proc(5); the name before may hold anything
    [ $# -ge 22 ] && printf '%s\n' "RGT p $p $2 $1 ${20} ${18} ${22} $c"
}

r_processes() {
    if [ -r /proc/1/cmdline ]; then
        echo "RGT pt $r_began $r_hz $r_page"
    elif [ -r /proc/self/cmdline ]; then
        echo "RGT pt $r_began $r_hz $r_page hidden"
    else
        return
    fi
    $r_guard $r_grep -HE "$r_programs" /proc/[0-9]*/cmdline 2>/dev/null | tr '\000' ' ' | cut -c1-900 | head -n 1000 |
        while IFS= read -r l; do
            p=${l#/proc/}
            r_process "${p%%/*}" "${l#*/cmdline:}"
        done
}

r_first /proc/sys/kernel/random/boot_id; r_boot=$v
r_cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo -)
echo "RGT hello $r_boot $r_cores $(uname -n 2>/dev/null || echo -) $$"
while IFS=' ' read -r t n; do
    [ "$t" = t ] || continue
    echo "RGT { $n $(date +%s)"
    r_host
    r_cgroup
    r_processor
    r_disks
    r_gpus
    r_processes
    echo "RGT } $n"
done
