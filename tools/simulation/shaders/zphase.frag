#version 150
// Multiplies what is there.
out vec4 stdout;
void main(void) { stdout = vec4(${shade}, 1.0); }
