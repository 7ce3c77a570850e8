//! Prints the same as `hayward plan --places`, without the rest of the program, for comparisons of
//! many scenarios: `cargo run --release -p hayward-rm-scheduler-scenario --example plan -- FILE`.

use std::{error::Error, fs};

use hayward_rm_scheduler_scenario::{OutcomeOptions, Scenario};

fn main() -> Result<(), Box<dyn Error>> {
    let options = OutcomeOptions {
        places: true,
        explain: false,
    };
    for file in std::env::args().skip(1) {
        let scenario = Scenario::read(&fs::read_to_string(file)?)?;
        for outcome in scenario.run(options)? {
            println!("{}", serde_json::to_string(&outcome)?);
        }
    }
    Ok(())
}
