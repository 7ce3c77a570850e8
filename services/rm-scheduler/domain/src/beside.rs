//! A second thread where there is so much to do that it pays.

/// Below this much work a second thread costs more than it saves.
const WORTH_A_THREAD: usize = 10_000;

/// Both answers; the second is worked out beside the first where there is much work.
pub(crate) fn both<A, B: Send>(
    work: usize,
    here: impl FnOnce() -> A,
    beside: impl FnOnce() -> B + Send,
) -> (A, B) {
    if work < WORTH_A_THREAD {
        return (here(), beside());
    }
    std::thread::scope(|threads| {
        let beside = threads.spawn(beside);
        let here = here();
        match beside.join() {
            Ok(beside) => (here, beside),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
