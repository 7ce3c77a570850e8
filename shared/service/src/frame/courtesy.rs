//! Whoever asks for much at once lets the others go first (G13). A caller who is answered sees
//! nothing of it while there is time for all; when this process falls behind, what it falls behind
//! by is waited for by those who have many requests under way, and not by who has one.

use std::time::{Duration, Instant};

/// Requests of one caller at once that are nobody's burden.
pub(super) const FEW: u32 = 8;
/// A refusal takes this long, so that asking again at once is no faster than waiting.
const REFUSED: Duration = Duration::from_millis(100);
/// What was waited for one turn is waited so many times more, so that of many requests of one
/// caller few stand in the way at any time.
const TIMES: u32 = 10;
const LEAST: Duration = Duration::from_millis(1);
const MOST: Duration = Duration::from_millis(100);

/// Waits for one turn of everybody who is ready, and longer where that took long.
pub(super) async fn let_others_go_first() {
    let began = Instant::now();
    tokio::task::yield_now().await;
    if let Some(wait) = after(began.elapsed()) {
        tokio::time::sleep(wait).await;
    }
}

/// Between two connections that are let in: whoever comes through the door in thousands (F39), or
/// again for each request (F40), takes turns with everybody who is in already, and comes in the
/// more slowly the longer such a turn takes.
pub(super) async fn let_those_inside_go_first() {
    let began = Instant::now();
    tokio::task::yield_now().await;
    let turn = began.elapsed();
    if turn >= LEAST {
        tokio::time::sleep(turn.min(MOST)).await;
    }
}

pub(super) async fn before_a_refusal() {
    tokio::time::sleep(REFUSED).await;
}

fn after(turn: Duration) -> Option<Duration> {
    let wait = turn.saturating_mul(TIMES).min(MOST);
    (wait >= LEAST).then_some(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g13_who_keeps_up_makes_nobody_wait_and_nobody_waits_for_ever() {
        assert_eq!(after(Duration::from_micros(20)), None);
        assert_eq!(after(LEAST), Some(LEAST * TIMES));
        assert_eq!(after(Duration::from_secs(9)), Some(MOST));
    }
}
