//! Why each piece of work in a pool with a planner outside has what it has. Whatever lacks
//! something lacks it because of that planner, whose words are passed on.

use hayward_rm_scheduler_domain::{
    Reason, Verdict, Verdicts, plan::Numbers, snapshot::outside::Heard,
};
use hayward_vocabulary::{WorkId, counted::processes};

use crate::pool_view::{Book, Wish};

pub(crate) fn all(book: &Book, told: (Option<&str>, Option<&Heard>)) -> Verdicts {
    let work = book.work.iter();
    let said = work.map(|(work, wish)| ((*work).clone(), Box::new(one(book, (work, wish), told))));
    said.collect()
}

fn one(
    book: &Book,
    (work, wish): (&WorkId, &Wish),
    told: (Option<&str>, Option<&Heard>),
) -> Verdict {
    let (has, wanted) = (wish.has, wish.wanted());
    let (reason, refused, detail) = if !wish.may_use_its_class() {
        let (user, class) = (&wish.demand.user, wish.class_name);
        let detail = format!("user {user} may not use class {class:?}");
        (Reason::NotAuthorised, true, detail)
    } else if wish.demand.max_processes == 0 {
        let detail = "holds itself back: it wants no process now".to_owned();
        (Reason::Satisfied, false, detail)
    } else if has >= wanted {
        let detail = format!("has all it can use: {}", processes(has));
        (Reason::Satisfied, false, detail)
    } else {
        let detail = lacking(book.top, work, told);
        (Reason::OutsidePlanner, false, detail)
    };
    Verdict {
        reason,
        waits: reason != Reason::Satisfied && has == 0,
        refused,
        class: Some(wish.class_name.into()),
        detail: detail.into(),
        numbers: Numbers {
            counted_processes: has,
            current_processes: has,
            leaving_processes: wish.leaving,
            order: wish.order,
            wanted_processes: wanted,
            ..Numbers::default()
        },
        also: Vec::new(),
        unblock: None,
    }
}

fn lacking(pool: &str, work: &WorkId, (silence, heard): (Option<&str>, Option<&Heard>)) -> String {
    if let Some(why) = silence {
        return format!("outside planner of pool {pool} did not answer: {why}");
    }
    let Some(heard) = heard else {
        return format!("outside planner of pool {pool} has not answered yet");
    };
    let note = heard.notes.get(work);
    match (heard.refused.get(work), note) {
        (Some(refused), _) => {
            format!("what the outside planner of pool {pool} says is refused: {refused}")
        }
        (None, Some(note)) => {
            format!("outside planner of pool {pool} did not place it: {note}")
        }
        (None, None) => {
            format!("outside planner of pool {pool} did not place it, and does not say why")
        }
    }
}
