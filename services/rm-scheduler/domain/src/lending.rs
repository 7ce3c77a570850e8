//! Idle room that is due to nobody is lent.

mod candidates;

use crate::{
    placement::{attempt::place, pass::Walk},
    state::Books,
};
use candidates::borrowing;

/// Room that no count claims is lent to whoever can use it: an idle node helps nobody, and it is
/// taken back as soon as somebody due can stand there. Nodes whose room is spoken for are left out.
pub(crate) fn lend_idle(books: &mut Books, tree: usize) {
    let mut walk: Option<Walk> = None;
    let mut borrowing = borrowing(books, tree);
    loop {
        let is_in_vain = |at| {
            let walk = walk.as_ref();
            walk.is_some_and(|walk| walk.is_in_vain(&books.requests[at]))
        };
        let Some(at) = borrowing.next(books, is_in_vain) else {
            break;
        };
        let request = &books.requests[at];
        let more = request.cap.now.saturating_sub(request.has());
        if more > 0 && !books.demand(at).completing {
            let walk = walk.get_or_insert_with(|| Walk::open(books, at, true));
            place(books, walk, at, more);
        }
    }
    borrowing.close(books);
    if let Some(walk) = walk {
        walk.close(books);
    }
}
