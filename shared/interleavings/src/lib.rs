//! Tests of concurrency: [`check`] runs a test in hundreds of thread interleavings with shuttle.
//!
//! A crate under test takes its locks from here in tests, and from `parking_lot` otherwise. Outside
//! [`check`] both behave the same. Code without these locks, such as a tokio channel, runs as one
//! step.

use std::cell::Cell;
use std::sync::LazyLock;

pub use shuttle::{future, thread};

thread_local! {
    /// True while this thread runs a test of [`check`]. Shuttle runs its threads one at a time on
    /// the calling thread.
    static IS_CHECKING: Cell<bool> = const { Cell::new(false) };
}

/// Runtime with the timers of tests. It is never driven and never dropped, because it still
/// contains wakers of shuttle after a failed test.
static TIMERS: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut timers = tokio::runtime::Builder::new_current_thread();
    timers.enable_time().build().expect("a runtime")
});

/// Marks the thread as checking until the guard is dropped, also when the test panics.
struct CheckGuard;

impl CheckGuard {
    fn begin() -> Self {
        IS_CHECKING.set(true);
        Self
    }
}

impl Drop for CheckGuard {
    fn drop(&mut self) {
        IS_CHECKING.set(false);
    }
}

/// Runs a test in this many random interleavings. Timers of tokio never fire in it. A wait that
/// only its time limit would end is a deadlock and fails the test.
///
/// # Panics
/// If the test panics. The message contains the schedule that repeats the failure.
pub fn check(interleavings: usize, test: impl Fn() + Send + Sync + 'static) {
    let _runtime = TIMERS.enter();
    let _guard = CheckGuard::begin();
    shuttle::check_random(test, interleavings);
}

/// Acquires a lock. Inside [`check`] it tries repeatedly and never blocks, because all threads of
/// shuttle share one thread of the system. Each attempt lets shuttle switch to another thread.
fn acquire<G>(try_acquire: impl Fn() -> Option<G>, acquire_blocking: impl FnOnce() -> G) -> G {
    if !IS_CHECKING.get() {
        return acquire_blocking();
    }
    loop {
        thread::yield_now();
        if let Some(guard) = try_acquire() {
            return guard;
        }
    }
}

/// A mutex whose interleavings [`check`] explores.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub fn lock(&self) -> parking_lot::MutexGuard<'_, T> {
        acquire(|| self.0.try_lock(), || self.0.lock())
    }
}

/// A reader-writer lock whose interleavings [`check`] explores.
#[derive(Debug, Default)]
pub struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(parking_lot::RwLock::new(value))
    }

    pub fn read(&self) -> parking_lot::RwLockReadGuard<'_, T> {
        acquire(|| self.0.try_read(), || self.0.read())
    }

    pub fn write(&self) -> parking_lot::RwLockWriteGuard<'_, T> {
        acquire(|| self.0.try_write(), || self.0.write())
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::*;

    /// Adds one, either under one lock or with a gap between the read and the write.
    fn add_one(count: &Mutex<u32>, is_atomic: bool) {
        let mut guard = count.lock();
        let next = *guard + 1;
        if !is_atomic {
            drop(guard);
            guard = count.lock();
        }
        *guard = next;
    }

    /// Returns whether two threads that each add one give two in every interleaving.
    fn counts_both_increments(is_atomic: bool) -> bool {
        let test = move || {
            let count = Arc::new(Mutex::new(0));
            let threads = [0; 2].map(|_| {
                let count = Arc::clone(&count);
                thread::spawn(move || add_one(&count, is_atomic))
            });
            for thread in threads {
                thread.join().expect("it ends");
            }
            assert_eq!(*count.lock(), 2);
        };
        catch_unwind(AssertUnwindSafe(|| check(200, test))).is_ok()
    }

    #[test]
    fn an_interleaving_with_a_lost_update_is_found() {
        assert!(counts_both_increments(true));
        assert!(!counts_both_increments(false));
    }

    #[test]
    fn a_wait_that_never_ends_is_found() {
        let test = || {
            let (sender, mut receiver) = tokio::sync::watch::channel(0);
            let limit = std::time::Duration::from_secs(1);
            // The timeout never fires, so only a lost change could end this wait.
            let wait = tokio::time::timeout(limit, receiver.changed());
            let _ = future::block_on(wait);
            drop(sender);
        };
        assert!(catch_unwind(|| check(1, test)).is_err());
    }
}
