//! Which browser is used.

use std::path::PathBuf;

/// The program to use where the one that is found is not wanted.
const CHOSEN: &str = "HAYWARD_TEST_CHROMIUM";
/// `required` where a test without a browser has to fail.
const WANTED: &str = "HAYWARD_TEST_BROWSER";
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// The first browser there is. None, said aloud, where there is none and none is required.
///
/// # Panics
/// When a browser is required and there is none.
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
