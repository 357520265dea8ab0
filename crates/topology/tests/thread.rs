//! The machine that the tests run on, and the calling thread's place on it.

use topology::{Error, Topology, allowed_cpus, current_cpu, pin_current_thread, place_of};

#[test]
fn the_machine_of_this_test_has_a_node_and_our_cpus() {
    let t = Topology::system().unwrap();
    let allowed = allowed_cpus().unwrap();
    assert!(t.node_count() >= 1);
    assert!(t.all_cpus().iter().all(|cpu| allowed.contains(cpu)));
    for node in 0..t.node_count() {
        assert!(!t.cpus(node).is_empty());
    }
    assert!(t.current_node() < t.node_count());
}

#[test]
fn pinning_moves_the_thread_and_hands_back_where_it_was() {
    let before = allowed_cpus().unwrap();
    for &cpu in &before {
        assert_eq!(pin_current_thread(&[cpu]).unwrap(), before);
        assert_eq!(current_cpu(), cpu);
        let inside = Topology::system().unwrap();
        assert_eq!(inside.all_cpus(), [cpu]);
        assert_eq!(pin_current_thread(&before).unwrap(), [cpu]);
    }
    assert_eq!(allowed_cpus().unwrap(), before);
}

#[test]
fn pinning_to_nothing_or_to_the_impossible_changes_nothing() {
    let before = allowed_cpus().unwrap();
    assert!(matches!(pin_current_thread(&[]), Err(Error::NoCpus)));
    assert!(matches!(pin_current_thread(&[u32::MAX]), Err(Error::CpuList(_))));
    let absent = (0..topology::CPU_LIMIT).rev().find(|cpu| !before.contains(cpu)).unwrap();
    let error = pin_current_thread(&[absent]).unwrap_err();
    assert!(matches!(error, Error::Affinity { what: "set", .. }));
    assert_eq!(error.errno(), 22, "EINVAL");
    assert_eq!(allowed_cpus().unwrap(), before);
}

#[test]
fn every_cpu_has_a_place_its_own_where_there_are_enough() {
    assert!((0..8).all(|cpu| place_of(cpu, 8) == cpu));
    let places: Vec<usize> = (0..7).map(|cpu| place_of(cpu, 3)).collect();
    assert_eq!(places, [0, 1, 2, 0, 1, 2, 0]);
}
