//! A telemetry collector of another vendor, between the fleet and the collector of the test. All
//! data that arrives was therefore read and written by another implementation of OTLP.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hayward_testkit::until_within;

/// Variable with the path of the other collector, which is Rotel. `tests/collector.sh` installs it.
const PROGRAM: &str = "HAYWARD_COLLECTOR";

/// A running collector of another vendor. It is killed when it is dropped.
pub(crate) struct Relay {
    program: Child,
    pub endpoint: String,
}

impl Relay {
    /// Starts a collector in front of `endpoint`. Returns `None` if the variable is not set.
    pub async fn start_in_front_of(endpoint: &str) -> Option<Self> {
        let program = std::env::var_os(PROGRAM)?;
        let (http, grpc) = (free_address(), free_address());
        let mut command = Command::new(program);
        command
            .arg("start")
            .args(["--otlp-http-endpoint", &http.to_string()])
            .args(["--otlp-grpc-endpoint", &grpc.to_string()])
            .args(["--exporter", "otlp", "--otlp-exporter-protocol", "http"])
            .args(["--otlp-exporter-endpoint", endpoint])
            .stdout(Stdio::null())
            .stdin(Stdio::null());
        let relay = Self {
            program: command.spawn().expect("a collector that starts"),
            endpoint: format!("http://{http}"),
        };
        let connect = async || TcpStream::connect(http).ok();
        until_within("the other collector", Duration::from_secs(20), connect).await;
        Some(relay)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // The collector may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address")
}
