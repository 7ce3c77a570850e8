//! Finds the browser program for the tests.

use std::path::PathBuf;

/// Variable with the path of the browser program. Without it, an installed program is searched.
const PROGRAM_VARIABLE: &str = "HAYWARD_TEST_CHROMIUM";
/// Variable with the value `required` if a test must fail without a browser.
const REQUIRED_VARIABLE: &str = "HAYWARD_TEST_BROWSER";
const PROGRAM_NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Returns the first browser that is found. Prints a note and returns `None` if there is none and
/// none is required.
///
/// # Panics
/// If a browser is required and there is none.
pub fn find_chromium() -> Option<PathBuf> {
    let configured = std::env::var_os(PROGRAM_VARIABLE).map(PathBuf::from);
    let found = configured.or_else(|| PROGRAM_NAMES.iter().find_map(|name| find_in_path(name)));
    if found.is_none() {
        let message =
            format!("no browser here: install `chromium`, or name one in {PROGRAM_VARIABLE}");
        assert!(
            std::env::var_os(REQUIRED_VARIABLE).is_none_or(|value| value != "required"),
            "{message}"
        );
        eprintln!("SKIPPED: {message}");
    }
    found
}

fn find_in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}
