//! Placing what fits, turn by turn (8.1). Each turn is one process, or one gang; what cannot be
//! placed is put aside with its reason, and the next in line has its turn.

use crate::{
    gang,
    resource_vec::times,
    round_state::{Books, Why},
    serve_order::Line,
};

pub(crate) fn run(books: &mut Books) {
    books.nodes.line_up();
    let mut line = Line::of(books);
    while let Some(app) = line.first(books) {
        turn(books, &mut line, app);
        line.update(books, app);
    }
}

fn turn(books: &mut Books, line: &mut Line, app: usize) {
    let (Some(ask), Ok(queue)) = (books.head(app), books.apps[app].queue.clone()) else {
        return;
    };
    if let Some(until) = books.kept.backing_off.get(books.apps[app].name) {
        let until = *until;
        return leave(books, app, Why::BackingOff { until });
    }
    if let Err(why) = books.may_run(app) {
        return leave(books, app, why);
    }
    if books.asks[ask].gang_lacks() > 0 {
        let before = books.placed.len();
        if let Err(why) = gang::place(books, ask, None) {
            for part in gang::parts(books, ask) {
                put_aside(books, line, (part, queue), why.clone());
            }
            return;
        }
        for at in before..books.placed.len() {
            let vector = books.vector(books.placed[at].ask).clone();
            line.less(books, queue, &vector);
        }
        return;
    }
    match seat(books, ask) {
        Ok(node) => {
            books.place(ask, node);
            let vector = books.vector(ask).clone();
            line.less(books, queue, &vector);
        }
        Err(why) => {
            let failed = why == Why::NoNode;
            put_aside(books, line, (ask, queue), why);
            if failed {
                count_failure(books, app, queue);
            }
        }
    }
}

/// Where one more process of this ask goes.
pub(crate) fn seat(books: &mut Books, ask: usize) -> Result<usize, Why> {
    books.may_hold(ask)?;
    books.find_node(ask).ok_or(Why::NoNode)
}

fn put_aside(books: &mut Books, line: &mut Line, (ask, queue): (usize, usize), why: Why) {
    let rest = times(books.vector(ask), books.asks[ask].missing());
    line.less(books, queue, &rest);
    books.asks[ask].why = Some(why);
    books.aside.push(ask);
}

/// The whole application has had its turn.
fn leave(books: &mut Books, app: usize, why: Why) {
    books.apps[app].aside = Some(why);
}

/// 9.4
fn count_failure(books: &mut Books, app: usize, queue: usize) {
    let manner = books.tree.spots[queue].manner;
    let it = &mut books.apps[app];
    it.failed += 1;
    if manner.backoff_asks > 0 && it.failed >= manner.backoff_asks {
        let until = books.snapshot.now.plus_ms(manner.backoff_ms);
        books.kept.backing_off.insert(it.name.to_owned(), until);
        it.aside = Some(Why::BackingOff { until });
    }
}
