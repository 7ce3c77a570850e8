//! Places work in serve order, one process or one gang at a time. An item that cannot be placed is
//! put aside with its reason.

use crate::{
    gang,
    resource_vec::times,
    round_state::{RoundState, Why},
    serve_order::ServeOrder,
};

pub(crate) fn run(round: &mut RoundState) {
    round.nodes.sort();
    let mut order = ServeOrder::new(round);
    while let Some(app) = order.first(round) {
        serve(round, &mut order, app);
        order.update(round, app);
    }
}

fn serve(round: &mut RoundState, order: &mut ServeOrder, app: usize) {
    let (Some(item), Ok(queue)) = (round.head(app), round.apps[app].queue.clone()) else {
        return;
    };
    if let Some(until) = round.carried.backing_off.get(round.apps[app].name) {
        let until = *until;
        return put_app_aside(round, app, Why::BackingOff { until });
    }
    if let Err(why) = round.may_run(app) {
        return put_app_aside(round, app, why);
    }
    if round.items[item].gang_lacks() > 0 {
        let before = round.placed.len();
        if let Err(why) = gang::place(round, item, None) {
            for part in round.open_gang_parts(item) {
                put_aside(round, order, part, queue, why.clone());
            }
            return;
        }
        for at in before..round.placed.len() {
            let vector = round.vector(round.placed[at].item).clone();
            order.less(round, queue, &vector);
        }
        return;
    }
    match round.find_placement(item) {
        Ok(node) => {
            round.place(item, node);
            let vector = round.vector(item).clone();
            order.less(round, queue, &vector);
        }
        Err(why) => {
            let failed = why == Why::NoNode;
            put_aside(round, order, item, queue, why);
            if failed {
                count_failure(round, app, queue);
            }
        }
    }
}

fn put_aside(round: &mut RoundState, order: &mut ServeOrder, item: usize, queue: usize, why: Why) {
    let rest = times(round.vector(item), round.items[item].missing());
    order.less(round, queue, &rest);
    round.items[item].why = Some(why);
    round.aside.push(item);
}

/// Puts all remaining items of the application aside.
fn put_app_aside(round: &mut RoundState, app: usize, why: Why) {
    round.apps[app].aside = Some(why);
}

/// Counts failed placements of an application, which determine its back-off.
fn count_failure(round: &mut RoundState, app: usize, queue: usize) {
    let settings = round.tree.entries[queue].settings;
    let it = &mut round.apps[app];
    it.failed += 1;
    if settings.backoff_asks > 0 && it.failed >= settings.backoff_asks {
        let until = round.snapshot.now.plus_ms(settings.backoff_ms);
        round.carried.backing_off.insert(it.name.to_owned(), until);
        it.aside = Some(Why::BackingOff { until });
    }
}
