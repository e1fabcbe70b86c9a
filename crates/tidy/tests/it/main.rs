//! The rules of this repository that the compiler and clippy do not hold. They only tighten.

mod claims;
mod house;
mod pages;
mod picture;
mod rules;
