//! Remedies for broken rules and for services that do not answer. The rules are the invariants that
//! services check. `docs/operations.md` describes each rule, with the same remedies.

/// Returns the remedy for a broken rule. The argument is the id of the rule.
pub fn for_rule(rule_id: &str) -> &'static str {
    match rule_id {
        "I2" => {
            "look at the node with `hayward node NODE`, and vary it off if work there suffers; \
             keep the newest rounds (`hayward rounds`) and report it: this should not happen"
        }
        "I5" => {
            "do not restart job-converter before its rows are saved (pg_dump); report it with \
             the id of the job"
        }
        "I10" => {
            "restart rm-scheduler: its memory is rebuilt from its rows; if it comes back, save \
             the rows (pg_dump) and report it"
        }
        "I13" => {
            "ask why with `hayward app ID`; give it up with `hayward app ID --remove` if \
             it stays so"
        }
        "I14" => {
            "look at the receipts with `hayward rounds`; lower the preemption budget in the \
             policy while you find out who asks and withdraws"
        }
        "I16" => {
            "see the item with `hayward blocks`; take it off with `hayward unblock NODE`, or \
             raise the share that may be blocked; then look at the log of blocklist"
        }
        "I20" => {
            "ask with `hayward explain ID`; if the answer is wrong, keep the round with \
             `hayward replay` and report it"
        }
        "I21" => {
            "ask with `hayward explain ID` and `hayward what-if`; replay the round with \
             `hayward replay ROUND` and report it"
        }
        "I24" => {
            "see what it waits for: a drain with `hayward node NODE`, a container with \
             `hayward containers`; a process that cannot be killed needs its machine rebooted"
        }
        "I25" => {
            "something asks faster than it is answered: look for it in `hayward load` and in \
             the log; a slow database is the likeliest cause"
        }
        _ => "see the table of rules in docs/operations.md",
    }
}

/// Returns the remedy for a service that does not answer.
pub fn for_unreachable(service: &str) -> String {
    format!(
        "start it again (`hayward run {service}`, `docker compose up -d {service}`, or \
         `hayward up` for all); nothing is lost while it is down, and {}",
        effect_of_outage(service)
    )
}

fn effect_of_outage(service: &str) -> &'static str {
    match service {
        "job-converter" => "what runs goes on, but nothing can be submitted and no task leased",
        "rm-scheduler" => "what runs goes on, but nothing new is placed and nothing taken back",
        "container-manager" => "what runs goes on, but nothing is started, stopped or moved",
        "node-status" => {
            "agents go on, but no loss of a node is noticed and no node can be drained"
        }
        "blocklist" => "blocks stay in force until their ends, but none can be set or taken off",
        _ => "the others go on",
    }
}
