#version 150
uniform mat4 modelMatrix; uniform mat4 viewMatrix; uniform mat4 projectionMatrix;
in vec4 position; in vec3 normal; in vec3 texcoord; in vec3 tangent; in vec3 bitangent;
out vec3 frag_normal; out vec2 frag_texcoord;
void main(void) {
  frag_normal = mat3(modelMatrix) * normal;
  frag_texcoord = texcoord.st;
  gl_Position = projectionMatrix * (viewMatrix * (modelMatrix * position));
}
