//! Thinking for long without keeping others waiting.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Does work of many milliseconds in a task. The tasks that would wait behind it on this thread are
/// moved to another; where there is no other, they wait.
pub fn block_in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|handle| handle.runtime_flavor());
    if matches!(flavor, Ok(RuntimeFlavor::MultiThread)) {
        tokio::task::block_in_place(work)
    } else {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::block_in_place;

    #[test]
    fn it_is_done_wherever_it_is_asked_for() {
        assert_eq!(block_in_place(|| 1), 1);
        let alone = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(alone.unwrap().block_on(async { block_in_place(|| 2) }), 2);
    }

    #[test]
    fn others_go_on_meanwhile() {
        let pool = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (says, hears) = std::sync::mpsc::channel();
        let heard = pool.block_on(async {
            let thinker = tokio::spawn(async move {
                tokio::spawn(async move { says.send(3) });
                block_in_place(|| hears.recv())
            });
            thinker.await.unwrap()
        });
        assert_eq!(heard, Ok(3));
    }
}
