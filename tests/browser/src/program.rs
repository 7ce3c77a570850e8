//! Selects the browser program.

use std::path::PathBuf;

/// Variable with the browser program to use. If it is not set, an installed one is searched.
const CHOSEN: &str = "HAYWARD_TEST_CHROMIUM";
/// Variable with the value `required` if a test must fail without a browser.
const WANTED: &str = "HAYWARD_TEST_BROWSER";
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Returns the first browser that is found. Prints a note and returns `None` if there is none and
/// none is required.
///
/// # Panics If a browser is required and there is none.
pub fn chromium() -> Option<PathBuf> {
    let chosen = std::env::var_os(CHOSEN).map(PathBuf::from);
    let found = chosen.or_else(|| NAMES.iter().find_map(|name| in_path(name)));
    if found.is_none() {
        let advice = format!("no browser here: install `chromium`, or name one in {CHOSEN}");
        assert!(
            std::env::var_os(WANTED).is_none_or(|it| it != "required"),
            "{advice}"
        );
        eprintln!("SKIPPED: {advice}");
    }
    found
}

fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}
