//! `http-server DIR [ADDRESS]`: serves the store in DIR, made if missing, until SIGINT (Ctrl-C).

use std::process::ExitCode;
use std::time::Duration;

use http_server::serve;
use ringdb::{Db, Options};

/// How long requests under way may take when the server ends.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let (Some(dir), address) = (args.next(), args.next().unwrap_or_else(|| "127.0.0.1:8080".into())) else {
        eprintln!("usage: http-server DIR [ADDRESS]");
        return ExitCode::from(2);
    };
    match run(&dir, &address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("http-server: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(dir: &str, address: &str) -> Result<(), Box<dyn std::error::Error>> {
    let db = Db::open(dir, Options::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("http://{}/keys", listener.local_addr()?);
        let interrupted = async {
            // Without a handler there is no way to end it but by force.
            let _ = tokio::signal::ctrl_c().await;
        };
        serve(listener, db.clone(), interrupted, GRACE).await
    })?;
    // No task is left. What close reports, a drop would swallow.
    drop(runtime);
    Ok(db.close()?)
}
