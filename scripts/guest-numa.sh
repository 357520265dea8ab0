# Sourced by scripts/guest. Machines of several NUMA nodes, with persistent memory on each.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what scripts/guest reads and sets
#
#   two   two nodes, a CPU, an NVDIMM and a network card on each, and a third card at the other end
#   four  four nodes with an NVDIMM each; the last has no CPU, and the third is nearest to it. The
#         tests of whatever delegates run there, too
#   cxl   a node with a CPU and an NVDIMM, and memory behind CXL (QEMU's cxl-type3)
#
# scripts/guest-numa-init is what runs inside.

numa_boots="two four cxl"
# Of the cards; the last byte is the node's number, or ff at the other end.
card_address=52:54:00:77:00

# The tests outside stay where they are: only the list of them goes in.
put_numa() {
    local name
    {
        for name in workers delegate layout lib:placement; do
            echo "${tests[$name]}"
        done
        echo "${tests[lib:pool]} nodes::"
    } >"$root/tests/numa"
    put "${tests[nodes]}" tests/nodes
    put "${tests[thread]}" tests/thread
    put "${tests[caches]}" tests/caches
    put "${tests[levers]}" tests/levers
    # Direct reads and writes want aligned buffers, which the shell's own dd does not have.
    rm -f "$root/bin/dd"
    put "$(command -v dd)" bin/dd
    put "$(command -v cxl)" bin/cxl
    # The shell has none, that makes a program come before all others.
    put "$(command -v chrt)" bin/chrt
}

machine_of_two() {
    local node
    nvdimm_size=226M
    node_cpus=(0 1)
    distances=("src=0,dst=1,val=21")
    more_devices=(
        -netdev hubport,hubid=0,id=net-far
        -device "virtio-net-pci,netdev=net-far,mac=$card_address:ff"
    )
    for node in "${!node_cpus[@]}"; do
        more_devices+=(
            -device "pxb,id=bus$node,bus=pci.0,bus_nr=$((64 + 32 * node)),numa_node=$node"
            -netdev "hubport,hubid=0,id=net$node"
            -device "virtio-net-pci,bus=bus$node,addr=1,netdev=net$node,mac=$card_address:0$node"
        )
    done
}

# The node without a CPU is near the third, so neither the first nor the last before it would do.
machine_of_four() {
    nvdimm_size=226M
    more_devices=()
    node_cpus=(0 1 2 '')
    distances=(
        "src=0,dst=1,val=21" "src=0,dst=2,val=21" "src=0,dst=3,val=28"
        "src=1,dst=2,val=21" "src=1,dst=3,val=28" "src=2,dst=3,val=17"
    )
}

# The window in which the kernel maps CXL memory, a host bridge with two ports (with one alone QEMU
# and the kernel disagree about who decodes), and behind one of them persistent memory.
machine_of_cxl() {
    nvdimm_size=226M
    node_cpus=(0 1)
    distances=("src=0,dst=1,val=21")
    machine=q35,cxl=on,cxl-fmw.0.targets.0=cxl.0,cxl-fmw.0.size=1G,nvdimm=on
    truncate -s 256M "$scratch/cxl"
    truncate -s 1M "$scratch/cxl-labels"
    more_devices=(
        -object "memory-backend-file,id=cxl-file,share=on,size=256M,mem-path=$scratch/cxl"
        -object "memory-backend-file,id=cxl-lsa,share=on,size=1M,mem-path=$scratch/cxl-labels"
        -device "pxb-cxl,bus_nr=12,bus=pcie.0,id=cxl.0"
        -device "cxl-rp,port=0,bus=cxl.0,id=port0,chassis=0,slot=2"
        -device "cxl-rp,port=1,bus=cxl.0,id=port1,chassis=0,slot=3"
        -device "cxl-type3,bus=port0,memdev=cxl-file,lsa=cxl-lsa,id=cxl-pmem0"
    )
}

# Runs the boots that are named in `numa_only`.
numa() {
    local name words
    for name in $numa_only; do
        declare -F "machine_of_$name" >/dev/null || fail "no machine $name: $numa_boots"
        "machine_of_$name"
        make_memory
        words="${!node_cpus[*]}"
        words="nearside.nodes=${words// /,} nearside.cards=$card_address"
        [[ $name != four ]] || words+=" nearside.outside=1"
        boot "$name" ,nvdimm-persistence=cpu passed "$words"
    done
    echo "test result: ok. $passed passed; 0 failed"
}
