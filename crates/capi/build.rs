//! The shared library's name for the linker: programs ask for this version of it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnearside.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
