//! The `hayward` program as built with these tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Builds it if it is not there yet; a test run of the whole workspace has built it already.
pub fn hayward() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("this program");
        let profile = test
            .ancestors()
            .nth(2)
            .expect("target/<profile>/deps/<test>");
        let mut build = Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "--package",
            "hayward",
            "--bin",
            "hayward",
        ]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let built = build
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .expect("cargo, to build the program under test");
        assert!(built.success(), "the program under test does not build");
        profile.join("hayward")
    })
}
