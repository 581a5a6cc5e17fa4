//! Gives the shared library its name: programs that are linked with it ask for that one later.

fn main() {
    println!("cargo:rerun-if-env-changed=BACKSTITCH_SONAME");
    let name = std::env::var("BACKSTITCH_SONAME").unwrap_or_else(|_| "libbackstitch.so".into());
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{name}");
    }
}
