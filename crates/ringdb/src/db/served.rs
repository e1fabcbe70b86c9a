//! Whether a store is served by a socket, and why not.

/// How a store is served.
#[derive(Default)]
pub(super) struct Served {
    #[cfg(feature = "socket")]
    server: std::sync::Mutex<Option<crate::socket::Server>>,
    /// Why it is not, if it was meant to be.
    #[cfg(feature = "socket")]
    why_not: std::sync::OnceLock<String>,
}

impl Served {
    /// For [`crate::Stats::socket`].
    pub fn tell(&self) -> String {
        #[cfg(feature = "socket")]
        match self.why_not.get() {
            Some(why) => return format!("off: {why}"),
            None if self.server().is_some() => return "on".into(),
            None => {}
        }
        "off".into()
    }
}

#[cfg(feature = "socket")]
impl Served {
    /// Not one of `crate::sync`, as the server's threads are not the `Env`'s: only the machine's own has any.
    pub fn server(&self) -> std::sync::MutexGuard<'_, Option<crate::socket::Server>> {
        self.server.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Remembers why the store is not served.
    pub fn is_not(&self, why: String) {
        let _ = self.why_not.set(why);
    }
}
