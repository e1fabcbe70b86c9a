//! Gives the shared library its name for the loader; the number is RINGDB_ABI_VERSION.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libringdb.so.1");
}
