# Sourced by scripts/guest. A machine with RDMA: Debian's kernel does that in software (soft-RoCE)
# on a network of its own, and libfabric, its verbs and the tests are those of the machine outside.
# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # what scripts/guest reads and sets
#
# scripts/guest-fabric-init is what runs inside.

# Modules of the kernel, in the order in which they are loaded.
fabric_modules="configfs udp_tunnel ip6_udp_tunnel crc32_generic dummy ib_core ib_uverbs ib_cm
iw_cm rdma_cm rdma_ucm rdma_rxe"
# A share of the tests of fabrics: the guest's CPUs are slow.
fabric_tests="cases::threads cases::files cases::names cases::pipelined who_ends locks::
fabrics::many fabrics::a_ fabrics::who fabrics::without"

# Those that run alone, where the others run at once: one measures the memory of its process, and one
# has as many endpoints, which take much memory there, as all the others.
fabric_alone="who_asks_for_much many_who_come"

# What RDMA takes on the side that is not the kernel's.
verbs_packages=(ibverbs-providers iproute2 rdma-core)

build_fabric() {
    scripts/setup tests
    install_packages "${verbs_packages[@]}"
    source scripts/rust.sh # libfabric may be new here
    use_rust
    build_tests providers fabric
}

put_fabric() {
    echo "$fabric_modules" >"$root/tests/modules"
    {
        echo "${tests[providers]} the_one_that_is_asked_for"
        # shellcheck disable=SC2086 # one word for each
        echo "${tests[fabric]}" "${fabric_tests/$'\n'/ }" $(printf -- '--skip %s ' $fabric_alone)
        # shellcheck disable=SC2086 # one line for each
        printf '%s\n' $fabric_alone | sed "s|^|${tests[fabric]} |"
    } >"$root/tests/fabric"
}

fabric() {
    boot fabric "" passed nearside.outside=1
    echo "test result: ok. $passed passed; 0 failed"
}
