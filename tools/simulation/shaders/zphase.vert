#version 150
// Shadows: what is small, flattened onto the pitch along the light.
uniform mat4 modelMatrix; uniform mat4 viewMatrix; uniform mat4 projectionMatrix;
in vec4 position;
void main(void) {
  vec4 w = modelMatrix * position;
  w.xy -= vec2(${slope_x}, ${slope_y}) * max(w.z, 0.0);
  w.z = 0.025;
  gl_Position = projectionMatrix * (viewMatrix * w);
}
