//! A pool that is closed while others change it: what was acknowledged is there, and the log of a
//! closed pool is empty.

use crate::common::{TestPool, names, options};
use fs::{Ino, NewNode};

/// A change that returned between the last checkpoint and the word that the pool is closed lay in
/// the log of a closed pool, which no crash of the machine was to be expected in.
#[test]
fn a_change_is_folded_or_refused_when_the_pool_is_closed() {
    let mut options = options(2, 24 << 20);
    options.process = false;
    let pool = TestPool::with(&options);
    let mut made = 0u64;
    for _ in 0..40 {
        let fs = pool.start();
        let count = std::thread::scope(|scope| {
            let maker = scope.spawn(|| {
                let mut count = 0;
                loop {
                    let name = format!("file{}", made + count);
                    let made =
                        fs.create(Ino::ROOT, name.as_bytes(), NewNode::File, crate::common::BY);
                    match made {
                        Ok(_) => count += 1,
                        Err(error) => {
                            assert!(error.to_string().contains("closed"), "{error}");
                            return count;
                        }
                    }
                }
            });
            while (names(&fs, Ino::ROOT).len() as u64) < made + 20 {
                std::thread::yield_now();
            }
            fs.close().unwrap();
            maker.join().unwrap()
        });
        drop(fs);
        made += count;
        let fs = pool.start_alone();
        assert_eq!(fs.replayed(), 0, "the log of a closed pool");
        assert_eq!(names(&fs, Ino::ROOT).len() as u64, made, "what was acknowledged");
        fs.close().unwrap();
    }
}
