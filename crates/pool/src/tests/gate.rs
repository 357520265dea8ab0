//! The gate with the machine's own locks. Apart from `gate.rs`, which a model includes.

use crate::gate::Gate;
use std::sync::atomic::{AtomicU64, Ordering};

#[test]
fn nothing_is_under_way_while_the_gate_is_closed() {
    let gate = Gate::new(2);
    let inside = AtomicU64::new(0);
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for cpu in 0..3 {
            let (gate, inside, stop) = (&gate, &inside, &stop);
            scope.spawn(move || {
                while stop.load(Ordering::SeqCst) == 0 {
                    let _entered = gate.enter(cpu);
                    inside.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
        for _ in 0..200 {
            let _closed = gate.close();
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
        stop.store(1, Ordering::SeqCst);
    });
}
