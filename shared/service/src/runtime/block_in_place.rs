//! Runs long computations inside a task.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Runs a long computation in a task. Other tasks of the thread move to another thread if the
/// runtime has one.
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
    fn a_closure_runs_inside_and_outside_any_runtime() {
        assert_eq!(block_in_place(|| 1), 1);
        let single_threaded = tokio::runtime::Builder::new_current_thread().build();
        assert_eq!(
            single_threaded
                .unwrap()
                .block_on(async { block_in_place(|| 2) }),
            2
        );
    }

    #[test]
    fn other_tasks_run_while_a_task_blocks() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .build()
            .unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let received = runtime.block_on(async {
            let outer_task = tokio::spawn(async move {
                tokio::spawn(async move { sender.send(3) });
                block_in_place(|| receiver.recv())
            });
            outer_task.await.unwrap()
        });
        assert_eq!(received, Ok(3));
    }
}
